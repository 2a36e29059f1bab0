{{/* What the launcher's admission policy lets through, read off the launcher's own templates. */}}

{{/* "true" where the cluster has ValidatingAdmissionPolicy (v1 since Kubernetes 1.30) and it is wanted. */}}
{{- define "troupe.hasAdmissionPolicy" -}}
{{- $isNew := semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version -}}
{{- $wanted := .Values.launcher.admissionPolicy -}}
{{- if and (eq .Values.launcher.kind "kubernetes") (or (eq $wanted "required") (and (eq $wanted "auto") $isNew)) -}}
true
{{- end -}}
{{- end -}}

{{- define "troupe.checkAdmissionPolicy" -}}
{{- $isNew := semverCompare ">=1.30.0-0" .Capabilities.KubeVersion.Version -}}
{{- if and (eq .Values.launcher.kind "kubernetes") (eq .Values.launcher.admissionPolicy "required") (not $isNew) -}}
{{- fail (printf "launcher.admissionPolicy is required and this cluster is %s, which has no ValidatingAdmissionPolicy: upgrade to 1.30, set launcher.kind: none, or launcher.admissionPolicy: auto and read docs/security.md." .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- end -}}

{{/* YAML of the lists, each sorted. An image is named by its repository: a tag may change while a job runs. */}}
{{- define "troupe.admitted" -}}
{{- $lists := dict -}}
{{- range $name := list "repositories" "secrets" "configMaps" "claims" "accounts" "pullSecrets" "capabilities" "procMounts" "seccompProfiles" -}}
{{- $_ := set $lists $name list -}}
{{- end -}}
{{- $labels := dict -}}
{{- range $workload := include "troupe.workloads" . | fromYamlArray -}}
{{- $pod := $workload.spec.template.spec -}}
{{- range $key, $value := $workload.spec.template.metadata.labels -}}
{{- $_ := set $labels $key (append (index $labels $key | default list) $value | uniq | sortAlpha) -}}
{{- end -}}
{{- $_ := set $lists "accounts" (append $lists.accounts $pod.serviceAccountName) -}}
{{- with index ($workload.metadata.annotations | default dict) "troupe.dev/program-repositories" -}}
{{- $_ := set $lists "repositories" (concat $lists.repositories (splitList "," .)) -}}
{{- end -}}
{{- range $pod.imagePullSecrets -}}
{{- $_ := set $lists "pullSecrets" (append $lists.pullSecrets .name) -}}
{{- end -}}
{{- range $pod.volumes -}}
{{- with .secret }}{{- $_ := set $lists "secrets" (append $lists.secrets .secretName) -}}{{ end -}}
{{- with .configMap }}{{- $_ := set $lists "configMaps" (append $lists.configMaps .name) -}}{{ end -}}
{{- with .persistentVolumeClaim }}{{- $_ := set $lists "claims" (append $lists.claims .claimName) -}}{{ end -}}
{{- end -}}
{{- range $container := concat ($pod.initContainers | default list) $pod.containers -}}
{{- $_ := set $lists "repositories" (append $lists.repositories (regexReplaceAll "(:[^:/@]+)?(@.+)?$" $container.image "")) -}}
{{- range $container.env -}}
{{- with .valueFrom -}}
{{- with .secretKeyRef }}{{- $_ := set $lists "secrets" (append $lists.secrets .name) -}}{{ end -}}
{{- with .configMapKeyRef }}{{- $_ := set $lists "configMaps" (append $lists.configMaps .name) -}}{{ end -}}
{{- end -}}
{{- end -}}
{{- with $container.securityContext -}}
{{- $_ := set $lists "capabilities" (concat $lists.capabilities (.capabilities.add | default list)) -}}
{{- with .procMount }}{{- $_ := set $lists "procMounts" (append $lists.procMounts .) -}}{{ end -}}
{{- with .seccompProfile }}{{- with .localhostProfile }}{{- $_ := set $lists "seccompProfiles" (append $lists.seccompProfiles .) -}}{{ end }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $values := $lists }}
{{ $name }}: {{ $values | uniq | sortAlpha | toJson }}
{{- end }}
labels: {{ toJson $labels }}
{{- end -}}
