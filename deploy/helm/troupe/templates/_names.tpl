{{/* Names, labels and images. Nothing here renders an object. */}}

{{- define "troupe.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough for the longest suffix plus a StatefulSet's hash. */}}
{{- define "troupe.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 30 | trimSuffix "-" -}}
{{- else if contains (include "troupe.name" .) .Release.Name -}}
{{- .Release.Name | trunc 30 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "troupe.name" .) | trunc 30 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* (dict "root" $ "component" "router"): what selects the pods of a component. */}}
{{- define "troupe.selector" -}}
app.kubernetes.io/name: {{ include "troupe.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- with .pool }}
troupe.dev/pool: {{ . }}
{{- end }}
{{- end -}}

{{/* (dict "root" $ "component" "router" "more" $labels): of two values of one key that of "more" holds. */}}
{{- define "troupe.labels" -}}
{{ include "troupe.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: troupe
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with merge dict (.more | default dict) .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A pod's labels name no version: a new chart alone must not start Redis again. */}}
{{- define "troupe.podLabels" -}}
{{ include "troupe.selector" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (dict "root" $ "image" .Values.router.image "own" true): own images fall back to image.tag. */}}
{{- define "troupe.image" -}}
{{- $repository := .image.repository -}}
{{- if and .own .root.Values.image.registry -}}
{{- $repository = printf "%s/%s" (trimSuffix "/" .root.Values.image.registry) .image.repository -}}
{{- end -}}
{{- $tag := .image.tag -}}
{{- if and .own (not $tag) -}}
{{- $tag = default .root.Chart.AppVersion .root.Values.image.tag -}}
{{- end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository $tag -}}
{{- end -}}
{{- end -}}

{{/* Hub ids that models.download loads, with their folders below /srv: what a job's spec may name. */}}
{{- define "troupe.hubCopies" -}}
{{- $copies := list -}}
{{- range .Values.models.download }}{{ $copies = append $copies (printf "%s=models/%s" .repo .name) }}{{ end -}}
{{- join "," $copies -}}
{{- end -}}

{{- define "troupe.router" -}}
{{- $host := printf "%s-router" (include "troupe.fullname" .) -}}
{{- printf "%s:8481" $host -}}
{{- end -}}

{{/* Numbers reach templates as float64, whose own text is 1e+06. */}}
{{- define "troupe.scalar" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* (dict "prefix" "TROUPE_ENV_" "settings" ... "extra" ...): a container's environment. */}}
{{- define "troupe.settings" -}}
{{- $prefix := .prefix -}}
{{- range $name, $value := .settings }}
- name: {{ printf "%s%s" $prefix (upper $name) }}
  value: {{ include "troupe.scalar" $value | quote }}
{{- end }}
{{- range $name, $value := .extra }}
- name: {{ $name }}
  {{- if kindIs "map" $value }}
  {{- toYaml $value | nindent 2 }}
  {{- else }}
  value: {{ $value | quote }}
  {{- end }}
{{- end }}
{{- end -}}
