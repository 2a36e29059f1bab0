{{/* What all pods share: identity, confinement, placement. */}}

{{/* (dict "root" $ "component" "env" "of" .Values.env): fields of a pod's spec. Only a router that
     launches jobs talks to the Kubernetes API. */}}
{{- define "troupe.pod" -}}
serviceAccountName: {{ include "troupe.fullname" .root }}-{{ .component }}
{{- $talksToApi := and (eq .component "router") (eq .root.Values.launcher.kind "kubernetes") }}
automountServiceAccountToken: {{ $talksToApi }}
# A Service called troupe-router would set TROUPE_ROUTER_PORT, which reads as a setting.
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with mergeOverwrite (deepCopy .root.Values.nodeSelector) (.of.nodeSelector | default dict) }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat .root.Values.tolerations (.of.tolerations | default list) }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .of.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .of.graceSeconds }}
terminationGracePeriodSeconds: {{ add . 15 }}
{{- end }}
{{- end -}}

{{/* (dict "root" $ "component" ... "pool" ...) */}}
{{- define "troupe.spread" -}}
{{- with .root.Values.topologySpread }}
topologySpreadConstraints:
{{- range . }}
  - topologyKey: {{ .topologyKey }}
    maxSkew: {{ .maxSkew }}
    whenUnsatisfiable: {{ .whenUnsatisfiable }}
    labelSelector:
      matchLabels: {{- include "troupe.selector" $ | nindent 8 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* (dict "root" $ "user" 10001 "group" 10001) */}}
{{- define "troupe.podSecurity" -}}
runAsNonRoot: true
{{- if not .root.Values.clusterUserIds }}
runAsUser: {{ .user }}
runAsGroup: {{ .group }}
fsGroup: {{ .group }}
fsGroupChangePolicy: OnRootMismatch
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "troupe.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* (dict "of" .Values.trainer): of a worker that may pin memory, as RDMA needs. */}}
{{- define "troupe.workerSecurity" -}}
{{- if .of.ipcLock -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL], add: [IPC_LOCK]}
{{- else -}}
{{- include "troupe.containerSecurity" . -}}
{{- end -}}
{{- end -}}

{{/* Workers answer /readyz only while they serve a job, and nothing routes by readiness: whoever
     needs a replica asks the router. So idle workers are ready when they live, or `helm --wait`
     and rolling updates would wait for a job. Importing torch from a cold disk takes its time: 300 s,
     which is a job's limits.startup_timeout_s; models load after the first /livez. */}}
{{- define "troupe.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 150
livenessProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: {{ . }}, port: admin}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 3
{{- end -}}

{{- define "troupe.workerPorts" -}}
- {name: grpc, containerPort: 9000}
- {name: admin, containerPort: 9090}
{{- end -}}

{{/* (dict "root" $ "prefix" "TROUPE_ENV_" "of" .Values.env): where a worker listens and reports. */}}
{{- define "troupe.workerEnv" -}}
- name: {{ .prefix }}GRPC_ADDRESS
  value: 0.0.0.0:9000
- name: {{ .prefix }}ADMIN_ADDRESS
  value: 0.0.0.0:9090
- name: {{ .prefix }}ADVERTISE_HOST
  valueFrom:
    fieldRef: {fieldPath: status.podIP}
- name: {{ .prefix }}ROUTER
  value: {{ .router | default (include "troupe.router" .root) }}
- name: {{ .prefix }}GRACE_S
  value: {{ .graceSeconds | quote }}
{{- include "troupe.tlsEnv" .root }}
{{- end -}}

{{/* (dict "root" $ "prefix" "TROUPE_ROUTER_") */}}
{{- define "troupe.redisEnv" -}}
{{- $redis := .root.Values.redis -}}
{{- if $redis.enabled -}}
{{- $host := printf "%s-redis:6379/0" (include "troupe.fullname" .root) -}}
{{- $scheme := ternary "rediss" "redis" .root.Values.tls.enabled -}}
{{- $password := include "troupe.redisPassword" .root -}}
{{- if $password }}
- name: REDIS_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ $password }}, key: {{ include "troupe.redisPasswordKey" .root }}}
{{- end }}
- name: {{ .prefix }}REDIS_URL
  value: {{ $scheme }}://{{ if $password }}:$(REDIS_PASSWORD)@{{ end }}{{ $host }}
{{- else if $redis.external.urlSecret.name }}
- name: {{ .prefix }}REDIS_URL
  valueFrom:
    secretKeyRef: {name: {{ $redis.external.urlSecret.name }}, key: {{ $redis.external.urlSecret.key }}}
{{- else }}
- name: {{ .prefix }}REDIS_URL
  value: {{ $redis.external.url | quote }}
{{- end }}
{{- end -}}

{{/* The authorities of an external Redis, which its URL names by their path. */}}
{{- define "troupe.redisCaMount" -}}
{{- if and (not .Values.redis.enabled) (.Values.redis.external.caSecret).name }}
- {name: redis-ca, mountPath: /etc/troupe/redis-ca, readOnly: true}
{{- end }}
{{- end -}}

{{- define "troupe.redisCaVolume" -}}
{{- if and (not .Values.redis.enabled) (.Values.redis.external.caSecret).name }}
- name: redis-ca
  secret: {secretName: {{ .Values.redis.external.caSecret.name }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- define "troupe.runsClaim" -}}
{{- .Values.persistence.runs.existingClaim | default (printf "%s-runs" (include "troupe.fullname" .)) -}}
{{- end -}}

{{- define "troupe.modelsClaim" -}}
{{- .Values.persistence.models.existingClaim | default (printf "%s-models" (include "troupe.fullname" .)) -}}
{{- end -}}

{{/* (dict "resources" ... "gpus" 2 "gpuResource" "nvidia.com/gpu" "extra" .extraResources): devices belong to limits. */}}
{{- define "troupe.resources" -}}
{{- $resources := deepCopy .resources -}}
{{- if gt (int .gpus) 0 -}}
{{- $_ := set $resources.limits .gpuResource (int .gpus | toString) -}}
{{- end -}}
{{- range $name, $count := .extra -}}
{{- $_ := set $resources.limits $name (int $count | toString) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{/* Bytes of a quantity of whole units, such as 8Gi; empty: it is of another form. */}}
{{- define "troupe.bytes" -}}
{{- $quantity := include "troupe.scalar" . -}}
{{- if regexMatch "^[0-9]+([kMGTP]|[KMGTP]i)?$" $quantity -}}
{{- $units := dict "" 1 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "P" 1000000000000000 -}}
{{- mul (regexReplaceAll "[A-Za-z]+$" $quantity "" | int64) (index $units (regexReplaceAll "^[0-9]+" $quantity "") | int64) -}}
{{- end -}}
{{- end -}}

{{/* Without a volume of its own Redis' data are of its pod's ephemeral storage: the limit has room for them. */}}
{{- define "troupe.redisResources" -}}
{{- $resources := deepCopy .Values.redis.resources -}}
{{- $persistence := .Values.redis.persistence -}}
{{- $limit := get $resources.limits "ephemeral-storage" -}}
{{- if and $limit (not $persistence.enabled) -}}
{{- $own := include "troupe.bytes" $limit -}}
{{- $data := include "troupe.bytes" $persistence.size -}}
{{- if not (and $own $data) -}}
{{- fail (printf "redis.persistence.enabled is false, and redis.resources.limits.ephemeral-storage (%v) and redis.persistence.size (%s) can't be added: give both in whole units, such as 256Mi and 8Gi." $limit $persistence.size) -}}
{{- end -}}
{{- $_ := set $resources.limits "ephemeral-storage" (add $own $data | toString) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}

{{/* Bytes of Redis' maxmemory: what is set, or 70 % of its memory limit. */}}
{{- define "troupe.redisMaxmemory" -}}
{{- $redis := .Values.redis -}}
{{- if $redis.maxmemory -}}
{{- $redis.maxmemory -}}
{{- else -}}
{{- $limit := include "troupe.scalar" $redis.resources.limits.memory -}}
{{- $bytes := include "troupe.bytes" $limit -}}
{{- if not $bytes -}}
{{- fail (printf "redis.maxmemory is empty, and redis.resources.limits.memory is %q, of which no part can be taken: set redis.maxmemory (such as 6gb), or a limit like 8Gi." $limit) -}}
{{- end -}}
{{- div (mul $bytes 7) 10 -}}
{{- end -}}
{{- end -}}
