{{/* Who a pod is: a certificate of its role, mounted as files and named by TROUPE_TLS_*. */}}

{{/* (dict "root" $ "role" "env"): the Secret with ca.crt, tls.crt and tls.key. */}}
{{- define "troupe.tlsSecret" -}}
{{- if eq .root.Values.tls.source "existing" -}}
{{- index .root.Values.tls.secrets .role -}}
{{- else -}}
{{- printf "%s-tls-%s" (include "troupe.fullname" .root) .role -}}
{{- end -}}
{{- end -}}

{{/* Redis is asked for by the name of its Service; between the services the role is enough. */}}
{{- define "troupe.tlsNames" -}}
- {{ .role }}.troupe.internal
{{- if eq .role "redis" }}
{{- $host := printf "%s-redis" (include "troupe.fullname" .root) }}
- {{ $host }}
- {{ $host }}.{{ .root.Release.Namespace }}
- {{ $host }}.{{ .root.Release.Namespace }}.svc
- localhost
{{- end }}
{{- end -}}

{{- define "troupe.tlsRoles" -}}
- router
{{- if gt (int .Values.play.replicas) 0 }}
- play
{{- end }}
- rollout
- env
- trainer
{{- if .Values.redis.enabled }}
- redis
{{- end }}
{{- end -}}

{{- define "troupe.tlsEnv" -}}
{{- if .Values.tls.enabled }}
- name: TROUPE_TLS_CA
  value: /etc/troupe/tls/ca.crt
- name: TROUPE_TLS_CERT
  value: /etc/troupe/tls/tls.crt
- name: TROUPE_TLS_KEY
  value: /etc/troupe/tls/tls.key
{{- end }}
{{- end -}}

{{/* A folder, not files of it: the kubelet then brings a changed Secret in, and nothing restarts. */}}
{{- define "troupe.tlsMount" -}}
{{- if .Values.tls.enabled }}
- {name: tls, mountPath: /etc/troupe/tls, readOnly: true}
{{- end }}
{{- end -}}

{{- define "troupe.tlsVolume" -}}
{{- if .root.Values.tls.enabled }}
- name: tls
  secret: {secretName: {{ include "troupe.tlsSecret" . }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{/* The Secret with Redis' password, and its key; empty: Redis asks for none. */}}
{{- define "troupe.redisPassword" -}}
{{- if .Values.redis.passwordSecret.name -}}
{{- .Values.redis.passwordSecret.name -}}
{{- else if and .Values.redis.enabled .Values.redis.generatePassword -}}
{{- printf "%s-redis-password" (include "troupe.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "troupe.redisPasswordKey" -}}
{{- ternary .Values.redis.passwordSecret.key "password" (ne .Values.redis.passwordSecret.name "") -}}
{{- end -}}
