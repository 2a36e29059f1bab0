{{/* What a schema can't say. Each message names the value and the way out. */}}
{{- define "troupe.check" -}}
{{- include "troupe.checkNames" . -}}
{{- include "troupe.checkVolumes" . -}}
{{- include "troupe.checkPools" . -}}
{{- include "troupe.checkModels" . -}}
{{- include "troupe.checkSandbox" . -}}
{{- include "troupe.checkPrograms" . -}}
{{- include "troupe.checkRedis" . -}}
{{- include "troupe.checkDoor" . -}}
{{- include "troupe.checkGateway" . -}}
{{- include "troupe.checkExternalSecrets" . -}}
{{- include "troupe.checkScaling" . -}}
{{- include "troupe.checkLauncher" . -}}
{{- include "troupe.checkNodes" . -}}
{{- include "troupe.checkKeys" . -}}
{{- include "troupe.checkPublic" . -}}
{{- include "troupe.checkTls" . -}}
{{- include "troupe.checkServe" . -}}
{{- include "troupe.checkBundles" . -}}
{{- end -}}

{{/* Services are stricter than the objects before them: an install would fail half-way. */}}
{{- define "troupe.checkNames" -}}
{{- $full := include "troupe.fullname" . -}}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" $full) -}}
{{- fail (printf "%q, of the release's name, can't begin the name of a Service (a letter, then letters, digits and hyphens): name the release otherwise, or set fullnameOverride." $full) -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkPrograms" -}}
{{- if and .Values.env.program.repositories .Values.clusterUserIds -}}
{{- fail "env.program.repositories is set and clusterUserIds is true: a program's container needs another user than its env's. Set clusterUserIds: false, or empty the list." -}}
{{- end -}}
{{- if and .Values.env.program.repositories (ne .Values.launcher.kind "kubernetes") -}}
{{- fail "env.program.repositories is set and launcher.kind is none: the launcher gives a job's env pods the container of its image. Set launcher.kind: kubernetes, or empty the list." -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkServe" -}}
{{- $serve := .Values.serve -}}
{{- if $serve.enabled -}}
{{- if not (regexMatch "^(runs|models)/[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$" $serve.team) -}}
{{- fail (printf "serve.enabled is true and serve.team is %q: name a run folder or a published team on a volume, such as runs/demo-1." $serve.team) -}}
{{- end -}}
{{- if and (eq $serve.engine "cpu") (gt (int $serve.gpus) 0) -}}
{{- fail (printf "serve.engine is cpu and serve.gpus is %d, which it would leave idle: set serve.engine: sglang or serve.gpus: 0." (int $serve.gpus)) -}}
{{- end -}}
{{- include "troupe.checkStrangers" (dict "root" . "name" "serve" "of" $serve) -}}
{{- include "troupe.checkPublished" (dict "root" . "name" "serve" "of" $serve "peers" $serve.from "peersName" "serve.from") -}}
{{- end -}}
{{- end -}}

{{/* (dict "root" $ "name" "router" "of" .Values.router) */}}
{{- define "troupe.checkStrangers" -}}
{{- if and (not .of.keysSecret.name) (or (not .root.Values.networkPolicy.enabled) (ne .of.service.type "ClusterIP")) -}}
{{- fail (printf "%s.keysSecret.name is empty, and no NetworkPolicy (or a Service of another type than ClusterIP) keeps strangers out: name a Secret with keys (`troupe keys add`)." .name) -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkBundles" -}}
{{- if and .Values.bundles.enabled (not .Values.router.keysSecret.name) -}}
{{- fail "bundles.enabled is true and router.keysSecret.name is empty: whoever reaches the router could run code in env pods. Name a Secret of API keys (`troupe keys add NAME --scope code`)." -}}
{{- end -}}
{{- if and .Values.bundles.index .Values.networkPolicy.enabled (not .Values.bundles.indexTo) -}}
{{- fail "bundles.index is set and bundles.indexTo is empty: say where the index is (NetworkPolicy peers), or env pods can't reach it." -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkTls" -}}
{{- $tls := .Values.tls -}}
{{- if $tls.enabled -}}
{{- if and (eq $tls.source "certManager") (not $tls.issuerRef.name) -}}
{{- fail "tls.source is certManager and tls.issuerRef.name is empty: name the Issuer that signs for this namespace." -}}
{{- end -}}
{{- if eq $tls.source "existing" -}}
{{- range $role := include "troupe.tlsRoles" . | fromYamlArray -}}
{{- if not (index $tls.secrets $role) -}}
{{- fail (printf "tls.source is existing and tls.secrets.%s is empty: name a Secret with ca.crt, tls.crt (for %s.troupe.internal) and tls.key." $role $role) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkKeys" -}}
{{- include "troupe.checkStrangers" (dict "root" . "name" "router" "of" .Values.router) -}}
{{- if and .Values.router.keysSecret.name .Values.helmTest.enabled (not .Values.helmTest.keySecret.name) -}}
{{- fail "router.keysSecret asks for API keys and helmTest.keySecret has none: name a Secret with a key that may submit, or set helmTest.enabled: false." -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkPublic" -}}
{{- $router := .Values.router -}}
{{- if $router.tlsSecret -}}
{{- if or .Values.ingress.enabled .Values.gateway.enabled -}}
{{- fail "router.tlsSecret is set, and the Ingress or Gateway asks the router over plain HTTP: TLS ends there (ingress.tlsSecret, the Gateway's listener). Empty router.tlsSecret." -}}
{{- end -}}
{{- if .Values.helmTest.enabled -}}
{{- fail "router.tlsSecret is set and helmTest.enabled is true: its pod asks the router's Service over plain HTTP. Set helmTest.enabled: false." -}}
{{- end -}}
{{- end -}}
{{- include "troupe.checkPublished" (dict "root" . "name" "router" "of" $router "peers" .Values.networkPolicy.restFrom "peersName" "networkPolicy.restFrom") -}}
{{- end -}}

{{/* (dict "root" $ "name" "router" "of" .Values.router "peers" $peers "peersName" "networkPolicy.restFrom") */}}
{{- define "troupe.checkPublished" -}}
{{- $type := .of.service.type -}}
{{- if ne $type "ClusterIP" -}}
{{- if not (or .of.tlsSecret .of.service.allowPlainHttp) -}}
{{- fail (printf "%s.service.type is %s and %s.tlsSecret is empty: API keys would cross the network in the clear. Name a Secret of type kubernetes.io/tls, set %s.service.allowPlainHttp: true where TLS ends before it, or use an Ingress." .name $type .name .name) -}}
{{- end -}}
{{- if and .root.Values.networkPolicy.enabled (not .peers) -}}
{{- fail (printf "%s.service.type is %s and %s is empty: name who may reach it, such as [{ipBlock: {cidr: 203.0.113.0/24}}], or requests are dropped." .name $type .peersName) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkNodes" -}}
{{- if gt (int .Values.trainer.nodes) 1 -}}
{{- if ne .Values.launcher.kind "kubernetes" -}}
{{- fail (printf "trainer.nodes is %d and launcher.kind is none: only the launcher makes a trainer of several pods. Set launcher.kind: kubernetes or trainer.nodes: 1." (int .Values.trainer.nodes)) -}}
{{- end -}}
{{- if .Values.trainer.settings.ranks -}}
{{- fail "trainer.nodes is above 1 and trainer.settings.ranks is set: torchrun starts the ranks, one for each GPU of each pod. Remove trainer.settings.ranks." -}}
{{- end -}}
{{- end -}}
{{- if and .Values.trainer.settings.ranks (gt (int .Values.trainer.gpus) 0) -}}
{{- fail (printf "trainer.settings.ranks is %d and trainer.gpus is %d: each GPU has a rank. Remove trainer.settings.ranks." (int .Values.trainer.settings.ranks) (int .Values.trainer.gpus)) -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkLauncher" -}}
{{- if eq .Values.launcher.kind "kubernetes" -}}
{{- if .Values.env.autoscaling.enabled -}}
{{- fail "env.autoscaling.enabled is true and launcher.kind is kubernetes: each job has env.replicas envs of its own. Set env.replicas, or launcher.kind: none for shared envs that scale." -}}
{{- end -}}
{{- range .Values.rollout.pools -}}
{{- if .jobId -}}
{{- fail (printf "rollout.pools %q has a jobId and launcher.kind is kubernetes, which makes each job pods of its own: remove jobId." .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkVolumes" -}}
{{- if not .Values.singleNode -}}
{{- range $name, $volume := omit .Values.persistence "keep" -}}
{{- if and (not $volume.existingClaim) (eq $volume.accessMode "ReadWriteOnce") -}}
{{- fail (printf "persistence.%s.accessMode is ReadWriteOnce and singleNode is false: pods on several nodes share this volume. Use ReadWriteMany with a storage class that offers it, or name an existingClaim." $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkPools" -}}
{{- $seen := dict -}}
{{- range .Values.rollout.pools -}}
{{- if hasKey $seen .name -}}
{{- fail (printf "rollout.pools has two pools named %q: names must differ, each is a StatefulSet." .name) -}}
{{- end -}}
{{- $_ := set $seen .name true -}}
{{- if and (eq .engine "cpu") (gt (int .gpus) 0) -}}
{{- fail (printf "rollout.pools %q has engine cpu and gpus: %d, which it would leave idle: set engine: sglang or gpus: 0." .name (int .gpus)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkModels" -}}
{{- $seen := dict -}}
{{- if .Values.models.demo.enabled -}}{{ $_ := set $seen "plan_path_6x6" "models.demo" }}{{- end -}}
{{- range .Values.models.download -}}
{{- if hasKey $seen .name -}}
{{- fail (printf "models.download has %s as %q, and so has %s: names must differ, each is a folder of the models volume." .repo .name (get $seen .name)) -}}
{{- end -}}
{{- $_ := set $seen .name .repo -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkSandbox" -}}
{{- $env := .Values.env -}}
{{- if and (eq $env.sandbox.level "gvisor-pod") (not $env.runtimeClassName) -}}
{{- fail "env.sandbox.level is gvisor-pod and env.runtimeClassName is empty: name the cluster's RuntimeClass whose handler is runsc." -}}
{{- end -}}
{{- if and (eq $env.sandbox.level "namespaces") (not $env.sandbox.seccompProfile) -}}
{{- fail "env.sandbox.level is namespaces and env.sandbox.seccompProfile is empty: RuntimeDefault refuses user namespaces, so put a profile on the nodes and name it (docs/operations/sandbox.md)." -}}
{{- end -}}
{{- if and (eq $env.sandbox.level "process") (not $env.sandbox.acceptNoIsolation) -}}
{{- fail "env.sandbox.level is process, which isolates nothing: choose namespaces or gvisor-pod, or set env.sandbox.acceptNoIsolation: true if every program is trusted." -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkRedis" -}}
{{- $redis := .Values.redis -}}
{{- $isNamed := or $redis.external.url $redis.external.urlSecret.name -}}
{{- if and $redis.enabled $isNamed -}}
{{- fail "redis.enabled is true and redis.external is set: choose one; redis.enabled: false uses the external one." -}}
{{- end -}}
{{- if not $redis.enabled -}}
{{- if not $isNamed -}}
{{- fail "redis.enabled is false and redis.external names no server: set redis.external.url or redis.external.urlSecret.name." -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (not $redis.external.egressTo) -}}
{{- fail "redis.external.egressTo is empty and networkPolicy.enabled is true: name the peers that Redis is reached at, such as [{ipBlock: {cidr: 10.0.0.7/32}}]." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkDoor" -}}
{{- $ingress := .Values.ingress -}}
{{- if $ingress.enabled -}}
{{- if not $ingress.host -}}
{{- fail "ingress.enabled is true and ingress.host is empty: name the host." -}}
{{- end -}}
{{- if not (or $ingress.tlsSecret $ingress.allowPlainHttp) -}}
{{- fail "ingress.enabled is true and ingress.tlsSecret is empty: name the TLS secret, or set ingress.allowPlainHttp: true." -}}
{{- end -}}
{{- if not (or .Values.router.keysSecret.name $ingress.acceptAnonymous) -}}
{{- fail "ingress.enabled is true and nobody is asked for a key: set router.keysSecret.name, or ingress.acceptAnonymous: true where the controller asks (ingress.annotations)." -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.restFrom) -}}
{{- fail "ingress.enabled is true and networkPolicy.restFrom is empty: name the ingress controller's pods, or its requests are dropped." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkGateway" -}}
{{- $gateway := .Values.gateway -}}
{{- if $gateway.enabled -}}
{{- if not (and $gateway.host $gateway.parentRefs) -}}
{{- fail "gateway.enabled is true and gateway.host or gateway.parentRefs is empty: name the host, and the Gateway that listens for it." -}}
{{- end -}}
{{- if not (or .Values.router.keysSecret.name $gateway.acceptAnonymous) -}}
{{- fail "gateway.enabled is true and nobody is asked for a key: set router.keysSecret.name, or gateway.acceptAnonymous: true where a policy of the Gateway asks." -}}
{{- end -}}
{{- if and .Values.networkPolicy.enabled (not .Values.networkPolicy.restFrom) -}}
{{- fail "gateway.enabled is true and networkPolicy.restFrom is empty: name the Gateway's pods, or its requests are dropped." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkExternalSecrets" -}}
{{- $of := .Values.externalSecrets -}}
{{- if $of.enabled -}}
{{- if not (and $of.store.name $of.secrets) -}}
{{- fail "externalSecrets.enabled is true and externalSecrets.store.name or externalSecrets.secrets is empty: name the SecretStore, and the Secrets to make from it." -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "troupe.checkScaling" -}}
{{- range $name := list "router" "env" -}}
{{- $scaling := (index $.Values $name).autoscaling -}}
{{- if and $scaling.enabled (gt (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- fail (printf "%s.autoscaling.minReplicas (%d) is above maxReplicas (%d)." $name (int $scaling.minReplicas) (int $scaling.maxReplicas)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
