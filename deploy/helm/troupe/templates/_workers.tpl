{{/* The pods that work for jobs. The chart puts them into its own StatefulSets and Deployment, or into
     the launcher's templates. */}}

{{/* A worker that the launcher made is ready when it serves the right version. One that waits for
     a job may wait for long: it is ready when it lives, or `helm --wait` would wait for a job. */}}
{{- define "troupe.workerReadiness" -}}
{{- ternary "/readyz" "/livez" (eq .Values.launcher.kind "kubernetes") -}}
{{- end -}}

{{/* "true" where Kueue queues what the launcher makes: a job with GPUs, all its pods as one group. */}}
{{- define "troupe.isQueued" -}}
{{- if and .Values.kueueQueue (eq .Values.launcher.kind "kubernetes") -}}
{{- $gpus := int .Values.trainer.gpus -}}
{{- range .Values.rollout.pools }}{{ $gpus = add $gpus (int .gpus) }}{{ end -}}
{{- if gt (int $gpus) 0 }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* Labels of a job's pod in a queue. The queue is named on pods alone: Kueue would queue a Job or
     StatefulSet that names one by itself. The launcher adds the group and its size. */}}
{{- define "troupe.queueLabels" -}}
{{- if include "troupe.isQueued" . -}}
kueue.x-k8s.io/queue-name: {{ .Values.kueueQueue }}
kueue.x-k8s.io/managed: "true"
{{- end -}}
{{- end -}}

{{/* (dict "root" $ "of" .podAnnotations): the annotations of a job's pod. With pod-suspending-parent
     Kueue gates the pod without a finalizer, which would keep a StatefulSet from replacing it. */}}
{{- define "troupe.jobPodAnnotations" -}}
{{- $annotations := deepCopy (.of | default dict) -}}
{{- if include "troupe.isQueued" .root -}}
{{- $_ := set $annotations "kueue.x-k8s.io/pod-suspending-parent" "troupe-launcher" -}}
{{- end -}}
{{- with $annotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* A number of GPUs: SGLang's server spreads over all of them. */}}
{{- define "troupe.sglangEnv" -}}
- name: TROUPE_ROLLOUT_SGLANG_DEVICE
  value: {{ ternary "cuda" "cpu" (gt (int .) 0) }}
- name: TROUPE_ROLLOUT_SGLANG_TP_SIZE
  value: {{ max 1 (int .) | quote }}
{{- end -}}

{{/* (dict "root" $ "pool" $pool): the pod of a rollout replica. */}}
{{- define "troupe.rolloutPod" -}}
{{- $root := .root -}}
{{- $pool := .pool -}}
{{- $is := dict "root" $root "component" "rollout" "pool" $pool.name -}}
{{- $isSglang := eq $pool.engine "sglang" -}}
{{- $image := $pool.image | default (ternary $root.Values.rollout.sglangImage $root.Values.rollout.image $isSglang) -}}
{{- $of := set (deepCopy $pool) "graceSeconds" (default $root.Values.rollout.graceSeconds $pool.graceSeconds) -}}
{{- $gpus := int $pool.gpus -}}
metadata:
  labels:
    {{- include "troupe.podLabels" $is | nindent 4 }}
    {{- include "troupe.queueLabels" $root | nindent 4 }}
  {{- include "troupe.jobPodAnnotations" (dict "root" $root "of" $pool.podAnnotations) | nindent 2 }}
spec:
  {{- include "troupe.pod" (dict "root" $root "component" "rollout" "of" $of) | nindent 2 }}
  {{- include "troupe.spread" $is | nindent 2 }}
  securityContext: {{- include "troupe.podSecurity" (dict "root" $root "user" 10001 "group" 10001) | nindent 4 }}
  containers:
    - name: rollout
      image: {{ include "troupe.image" (dict "root" $root "image" $image "own" true) }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: [troupe_rollout]
      ports: {{- include "troupe.workerPorts" . | nindent 8 }}
      env:
        {{- include "troupe.workerEnv" (dict "root" $root "prefix" "TROUPE_ROLLOUT_" "graceSeconds" $of.graceSeconds) | nindent 8 }}
        - name: TROUPE_ROLLOUT_ENGINE
          value: {{ $pool.engine }}
        {{- with $pool.jobId }}
        - name: TROUPE_ROLLOUT_JOB_ID
          value: {{ . | quote }}
        {{- end }}
        {{- if $isSglang }}
        {{- include "troupe.sglangEnv" $gpus | nindent 8 }}
        {{- end }}
        {{- include "troupe.settings" (dict "prefix" "TROUPE_ROLLOUT_" "settings" $pool.settings "extra" $pool.extraEnv) | nindent 8 }}
      {{- include "troupe.probes" (include "troupe.workerReadiness" $root) | nindent 6 }}
      resources: {{- include "troupe.resources" (dict "resources" $pool.resources "gpus" $gpus "gpuResource" ($pool.gpuResource | default "nvidia.com/gpu") "extra" $pool.extraResources) | nindent 8 }}
      securityContext: {{- include "troupe.workerSecurity" (dict "of" $pool) | nindent 8 }}
      terminationMessagePolicy: FallbackToLogsOnError
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: shm, mountPath: /dev/shm}
        {{- if $root.Values.rollout.mountRuns }}
        # A job may start from weights of an earlier one.
        - {name: runs, mountPath: /srv/runs, readOnly: true}
        {{- end }}
        - {name: models, mountPath: /srv/models, readOnly: true}
        {{- include "troupe.tlsMount" $root | nindent 8 }}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: {{ $pool.tmpSize }}}
    {{- include "troupe.tlsVolume" (dict "root" $root "role" "rollout") | nindent 4 }}
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ $pool.sharedMemory | default "1Gi" }}}
    {{- if $root.Values.rollout.mountRuns }}
    - name: runs
      persistentVolumeClaim: {claimName: {{ include "troupe.runsClaim" $root }}}
    {{- end }}
    - name: models
      persistentVolumeClaim: {claimName: {{ include "troupe.modelsClaim" $root }}}
{{- end -}}

{{/* The first pod alone serves; the others only compute, and their process is all that can be asked. */}}
{{- define "troupe.ranksProbes" -}}
startupProbe:
  exec: {command: &alive [sh, -ec, 'test "$JOB_COMPLETION_INDEX" != 0 || exec python -m troupe.cli.probe http://127.0.0.1:9090/livez']}
  periodSeconds: 5
  timeoutSeconds: 10
  failureThreshold: 60
livenessProbe:
  exec: {command: *alive}
  periodSeconds: 30
  timeoutSeconds: 10
  failureThreshold: 6
readinessProbe:
  exec: {command: *alive}
  periodSeconds: 15
  timeoutSeconds: 10
  failureThreshold: 3
{{- end -}}

{{/* The pod of a trainer. */}}
{{- define "troupe.trainerPod" -}}
{{- $root := . -}}
{{- $nodes := int $root.Values.trainer.nodes -}}
{{- $is := dict "root" $root "component" "trainer" -}}
{{- $gpus := int $root.Values.trainer.gpus -}}
metadata:
  labels:
    {{- include "troupe.podLabels" $is | nindent 4 }}
    {{- include "troupe.queueLabels" $root | nindent 4 }}
  {{- include "troupe.jobPodAnnotations" (dict "root" $root "of" $root.Values.trainer.podAnnotations) | nindent 2 }}
spec:
  {{- if eq $root.Values.launcher.kind "kubernetes" }}
  restartPolicy: Never
  {{- end }}
  {{- if gt $nodes 1 }}
  # Gives the pods names that they find each other by.
  subdomain: {{ include "troupe.fullname" $root }}-ranks
  {{- end }}
  {{- include "troupe.pod" (dict "root" $root "component" "trainer" "of" $root.Values.trainer) | nindent 2 }}
  securityContext: {{- include "troupe.podSecurity" (dict "root" $root "user" 10001 "group" 10001) | nindent 4 }}
  containers:
    - name: trainer
      image: {{ include "troupe.image" (dict "root" $root "image" $root.Values.trainer.image "own" true) }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      {{- if gt $nodes 1 }}
      command:
        - python
        - -m
        - torch.distributed.run
        - --nnodes={{ $nodes }}
        - --nproc-per-node={{ max 1 $gpus }}
        - --node-rank=$(JOB_COMPLETION_INDEX)
        - --master-addr=$(JOB_NAME)-0.{{ include "troupe.fullname" $root }}-ranks
        - --master-port=29400
        - --max-restarts=0
        - -m
      {{- end }}
      args: [troupe_trainer]
      ports: {{- include "troupe.workerPorts" . | nindent 8 }}
      env:
        {{- include "troupe.workerEnv" (dict "root" $root "prefix" "TROUPE_TRAINER_" "graceSeconds" $root.Values.trainer.graceSeconds) | nindent 8 }}
        {{- if gt $nodes 1 }}
        - name: JOB_NAME
          valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/job-name']"}}
        - name: JOB_COMPLETION_INDEX
          valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/job-completion-index']"}}
        {{- end }}
        - name: TROUPE_TRAINER_DEVICE
          value: {{ ternary "cuda" "cpu" (gt $gpus 0) }}
        {{- if and (ne $root.Values.launcher.kind "kubernetes") (gt $gpus 0) }}
        - name: TROUPE_TRAINER_RANKS
          value: {{ $gpus | quote }}
        {{- end }}
        {{- include "troupe.redisEnv" (dict "root" $root "prefix" "TROUPE_TRAINER_") | nindent 8 }}
        {{- include "troupe.settings" (dict "prefix" "TROUPE_TRAINER_" "settings" $root.Values.trainer.settings "extra" $root.Values.trainer.extraEnv) | nindent 8 }}
      {{- if gt $nodes 1 }}
      {{- include "troupe.ranksProbes" $root | nindent 6 }}
      {{- else }}
      {{- include "troupe.probes" "/livez" | nindent 6 }}
      {{- end }}
      resources: {{- include "troupe.resources" (dict "resources" $root.Values.trainer.resources "gpus" $gpus "gpuResource" $root.Values.trainer.gpuResource "extra" $root.Values.trainer.extraResources) | nindent 8 }}
      securityContext: {{- include "troupe.workerSecurity" (dict "of" $root.Values.trainer) | nindent 8 }}
      terminationMessagePolicy: FallbackToLogsOnError
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: shm, mountPath: /dev/shm}
        - {name: runs, mountPath: /srv/runs}
        - {name: models, mountPath: /srv/models, readOnly: true}
        {{- include "troupe.tlsMount" $root | nindent 8 }}
        {{- include "troupe.redisCaMount" $root | nindent 8 }}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: {{ $root.Values.trainer.tmpSize }}}
    {{- include "troupe.tlsVolume" (dict "root" $root "role" "trainer") | nindent 4 }}
    {{- include "troupe.redisCaVolume" $root | nindent 4 }}
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ $root.Values.trainer.sharedMemory }}}
    - name: runs
      persistentVolumeClaim: {claimName: {{ include "troupe.runsClaim" $root }}}
    - name: models
      persistentVolumeClaim: {claimName: {{ include "troupe.modelsClaim" $root }}}
{{- end -}}

{{/* The index of bundles' packages, for router, env and serve alike; empty without one. */}}
{{- define "troupe.bundleEnv" -}}
{{- if and .Values.bundles.enabled .Values.bundles.index -}}
- name: TROUPE_BUNDLE_INDEX
  value: {{ .Values.bundles.index | quote }}
{{- end -}}
{{- end -}}

{{/* "true" where jobs may bring an image for their agent program: each env pod's template has a container of it,
     which the launcher keeps for such a job, with the job's image, and takes out for all others. */}}
{{- define "troupe.hasPrograms" -}}
{{- if and .Values.env.program.repositories (eq .Values.launcher.kind "kubernetes") -}}true{{- end -}}
{{- end -}}

{{/* Another user than the service's, of the same group: it shares a folder with it, and no more. */}}
{{- define "troupe.programContainer" -}}
- name: program
  # The launcher puts the job's image and interpreter here.
  image: {{ first .Values.env.program.repositories }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [python, /srv/program/image_host.py, /srv/program/host.sock]
  resources: {{- toYaml .Values.env.program.resources | nindent 4 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10002
    runAsGroup: 10001
    {{- include "troupe.containerSecurity" . | nindent 4 }}
  terminationMessagePolicy: FallbackToLogsOnError
  volumeMounts:
    - {name: program, mountPath: /srv/program}
    - {name: program-tmp, mountPath: /tmp}
{{- end -}}

{{/* The pod of an env. */}}
{{- define "troupe.envPod" -}}
{{- $root := . -}}
{{- $is := dict "root" $root "component" "env" -}}
{{- $sandbox := $root.Values.env.sandbox -}}
{{- $router := "" -}}
{{- with $root.Values.router.service.clusterIP }}{{ $router = printf "%s:8481" . }}{{ end -}}
metadata:
  labels:
    {{- include "troupe.podLabels" $is | nindent 4 }}
    {{- include "troupe.queueLabels" $root | nindent 4 }}
  {{- include "troupe.jobPodAnnotations" (dict "root" $root "of" $root.Values.env.podAnnotations) | nindent 2 }}
spec:
  {{- include "troupe.pod" (dict "root" $root "component" "env" "of" $root.Values.env) | nindent 2 }}
  {{- include "troupe.spread" $is | nindent 2 }}
  {{- if eq $sandbox.level "namespaces" }}
  # Root of a user namespace is nobody on the node; procMount: Unmasked is allowed only so.
  hostUsers: false
  {{- end }}
  {{- if and $router (not (include "troupe.bundleEnv" $root)) }}
  # The router has a fixed address, so this pod resolves no names.
  dnsPolicy: None
  dnsConfig:
    nameservers: [127.0.0.1]
  {{- end }}
  {{- if eq $sandbox.level "gvisor-pod" }}
  # Root of gVisor's own kernel: the sandbox gives each program a user of its own.
  securityContext:
    runAsUser: 0
    runAsGroup: 0
    {{- if include "troupe.hasPrograms" $root }}
    # The socket of a program's container is its group's, and this root has no DAC_OVERRIDE.
    supplementalGroups: [10001]
    {{- end }}
    seccompProfile: {type: RuntimeDefault}
  {{- else }}
  securityContext:
    {{- include "troupe.podSecurity" (dict "root" $root "user" 10001 "group" 10001) | nindent 4 }}
  {{- end }}
  {{- $hasPrograms := include "troupe.hasPrograms" $root }}
  {{- if $hasPrograms }}
  initContainers:
    # Its files of the standard library go where the image's interpreter finds them.
    - name: program-host
      image: {{ include "troupe.image" (dict "root" $root "image" $root.Values.env.image "own" true) }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: [troupe_tasks.programs.image_host, --copy-to, /srv/program]
      resources: {{- toYaml $root.Values.env.resources | nindent 8 }}
      securityContext: {{- include "troupe.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - {name: program, mountPath: /srv/program}
  {{- end }}
  containers:
    - name: env
      image: {{ include "troupe.image" (dict "root" $root "image" $root.Values.env.image "own" true) }}
      imagePullPolicy: {{ $root.Values.image.pullPolicy }}
      args: [troupe_env]
      ports: {{- include "troupe.workerPorts" . | nindent 8 }}
      env:
        {{- include "troupe.workerEnv" (dict "root" $root "prefix" "TROUPE_ENV_" "graceSeconds" $root.Values.env.graceSeconds "router" $router) | nindent 8 }}
        {{- include "troupe.bundleEnv" $root | nindent 8 }}
        {{- if ne $sandbox.level "none" }}
        - name: TROUPE_ENV_SANDBOX
          value: {{ $sandbox.level }}
        {{- end }}
        {{- if $hasPrograms }}
        - name: TROUPE_PROGRAM_SOCKET
          value: /srv/program/host.sock
        {{- end }}
        {{- include "troupe.settings" (dict "prefix" "TROUPE_ENV_" "settings" $root.Values.env.settings "extra" $root.Values.env.extraEnv) | nindent 8 }}
      {{- include "troupe.probes" (include "troupe.workerReadiness" $root) | nindent 6 }}
      resources: {{- toYaml $root.Values.env.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        {{- if eq $sandbox.level "gvisor-pod" }}
        capabilities: {drop: [ALL], add: [CHOWN, KILL, SETGID, SETUID]}
        {{- else }}
        capabilities: {drop: [ALL]}
        {{- end }}
        {{- if eq $sandbox.level "namespaces" }}
        procMount: Unmasked
        seccompProfile: {type: Localhost, localhostProfile: {{ $sandbox.seccompProfile }}}
        {{- end }}
      terminationMessagePolicy: FallbackToLogsOnError
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- if $hasPrograms }}
        - {name: program, mountPath: /srv/program}
        {{- end }}
        {{- include "troupe.tlsMount" $root | nindent 8 }}
    {{- if $hasPrograms }}
    {{- include "troupe.programContainer" $root | nindent 4 }}
    {{- end }}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: {{ $root.Values.env.tmpSize }}}
    {{- if $hasPrograms }}
    - name: program
      emptyDir: {sizeLimit: 1Mi}
    - name: program-tmp
      emptyDir: {sizeLimit: {{ $root.Values.env.program.tmpSize }}}
    {{- end }}
    {{- include "troupe.tlsVolume" (dict "root" $root "role" "env") | nindent 4 }}
{{- end -}}

{{/* The launcher's templates: it adds a job's name, labels, owner and number of replicas. */}}
{{- define "troupe.workloads" -}}
{{- $root := . -}}
- apiVersion: batch/v1
  kind: Job
  metadata:
    {{- if gt (int .Values.trainer.gpus) 0 }}
    annotations:
      troupe.dev/gpu-resource: {{ .Values.trainer.gpuResource }}
    {{- end }}
    labels:
      {{- include "troupe.labels" (dict "root" $root "component" "trainer") | nindent 6 }}
  spec:
    # A pod that follows goes on from the last checkpoint.
    backoffLimit: {{ mul .Values.trainer.maxRestarts .Values.trainer.nodes }}
    {{- if gt (int .Values.trainer.nodes) 1 }}
    # The pods meet by torchrun; one that dies ends them all, and all begin again.
    completionMode: Indexed
    completions: {{ .Values.trainer.nodes }}
    parallelism: {{ .Values.trainer.nodes }}
    {{- end }}
    podFailurePolicy:
      rules:
        # Its configuration is wrong: another pod would fail again.
        - action: FailJob
          onExitCodes: {containerName: trainer, operator: In, values: [3]}
        # A drained node is no failure.
        - action: Ignore
          onPodConditions: [{type: DisruptionTarget, status: "True"}]
        {{- if include "troupe.isQueued" . }}
        # Nor is a pod that Kueue ended to make room for another job.
        - action: Ignore
          onPodConditions: [{type: TerminationTarget, status: "True"}]
        {{- end }}
    template:
      {{- include "troupe.trainerPod" . | nindent 6 }}
{{- range $pool := .Values.rollout.pools }}
- apiVersion: apps/v1
  kind: StatefulSet
  metadata:
    annotations:
      troupe.dev/models: {{ join "," ($pool.models | default (list "*")) | quote }}
    labels:
      {{- include "troupe.labels" (dict "root" $root "component" "rollout" "pool" $pool.name) | nindent 6 }}
  spec:
    podManagementPolicy: Parallel
    revisionHistoryLimit: 3
    template:
      {{- include "troupe.rolloutPod" (dict "root" $root "pool" $pool) | nindent 6 }}
{{- end }}
- apiVersion: apps/v1
  kind: StatefulSet
  metadata:
    {{- if include "troupe.hasPrograms" $root }}
    annotations:
      troupe.dev/program-repositories: {{ join "," .Values.env.program.repositories | quote }}
    {{- end }}
    labels: {{- include "troupe.labels" (dict "root" $root "component" "env") | nindent 6 }}
  spec:
    podManagementPolicy: Parallel
    revisionHistoryLimit: 3
    template:
      {{- include "troupe.envPod" . | nindent 6 }}
{{- end -}}
