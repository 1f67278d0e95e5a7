{{- define "nereid.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "nereid.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := include "nereid.name" . }}
{{- /* A release's name may contain dots, a service's name may not. */}}
{{- $release := .Release.Name | replace "." "-" }}
{{- if regexMatch "^[0-9]" $release }}
{{- fail (printf "the release is called %s, want a name that begins with a letter, as services have to, or fullnameOverride" .Release.Name) }}
{{- end }}
{{- if contains $name $release }}
{{- $release | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" $release $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{/* The name of the headless service, limited to the 63 characters of service names. */}}
{{- define "nereid.headless" -}}
{{- printf "%s-headless" (include "nereid.fullname" . | trunc 54 | trimSuffix "-") }}
{{- end }}

{{/*
The names of the Deployment's pods, as a regular expression: the name of its ReplicaSet, which Kubernetes truncates to 58 characters, and five
more characters. It does not match pods of other releases whose names start with this one's.
*/}}
{{- define "nereid.pods" -}}
{{- printf "%s-" (include "nereid.fullname" .) | trunc 58 }}[0-9a-z]*-?[0-9a-z]{5}
{{- end }}

{{- define "nereid.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "nereid.selectorLabels" -}}
app.kubernetes.io/name: {{ include "nereid.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Labels of the test's pod. The selectors of the server's pods must not match it, or the autoscaler and the disruption budget would count it. */}}
{{- define "nereid.testLabels" -}}
app.kubernetes.io/name: {{ include "nereid.name" . | trunc 58 | trimSuffix "-" }}-test
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "nereid.labels" -}}
helm.sh/chart: {{ include "nereid.chart" . }}
{{ include "nereid.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: inference-server
app.kubernetes.io/part-of: {{ include "nereid.name" . | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end }}

{{/* The chart's labels, overridden by a value. */}}
{{- define "nereid.labelsWith" -}}
{{- mergeOverwrite (include "nereid.labels" (index . 0) | fromYaml) (index . 1) | toYaml }}
{{- end }}

{{/* Labels of pods. Those in the selector cannot be overridden. */}}
{{- define "nereid.podLabels" -}}
{{- range $key, $value := include "nereid.selectorLabels" . | fromYaml }}
{{- if hasKey $.Values.podLabels $key }}
{{- fail (printf "podLabels has %s, want other labels: the selector finds the pods by this one" $key) }}
{{- end }}
{{- end }}
{{- include "nereid.labelsWith" (list . .Values.podLabels) }}
{{- end }}

{{- define "nereid.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "nereid.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "nereid.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{/* The termination grace period in seconds. */}}
{{- define "nereid.grace" -}}
{{- $needed := add .Values.preStopSleepSeconds .Values.server.exitDelaySeconds .Values.server.exitTimeoutSeconds 5 | int }}
{{- $grace := .Values.terminationGracePeriodSeconds | int }}
{{- if and $grace (lt $grace $needed) }}
{{- fail (printf "terminationGracePeriodSeconds is %d, want 0 or at least %d: preStopSleepSeconds + server.exitDelaySeconds + server.exitTimeoutSeconds + 5" $grace $needed) }}
{{- end }}
{{- if $grace }}{{ $grace }}{{ else }}{{ max 60 $needed }}{{ end }}
{{- end }}

{{/* The source of models: volume, image, git, store or none. */}}
{{- define "nereid.source" -}}
{{- $found := list }}
{{- with .Values.models }}
{{- if .volume }}{{ $found = append $found "volume" }}{{ end }}
{{- if .image.reference }}{{ $found = append $found "image" }}{{ end }}
{{- if .git.url }}{{ $found = append $found "git" }}{{ end }}
{{- if .store.url }}{{ $found = append $found "store" }}{{ end }}
{{- end }}
{{- if gt (len $found) 1 }}
{{- fail (printf "models has %s, want at most one of volume, image.reference, git.url and store.url" (join " and " $found)) }}
{{- end }}
{{- if $found }}{{ first $found }}{{ else }}none{{ end }}
{{- end }}

{{/* The value of --model-repository. */}}
{{- define "nereid.repository" -}}
{{- $source := include "nereid.source" . }}
{{- if eq $source "git" }}{{ .Values.models.path }}/current{{ with .Values.models.subPath }}/{{ . }}{{ end }}
{{- else if eq $source "store" }}{{ .Values.models.store.url }}
{{- else }}{{ .Values.models.path }}
{{- end }}
{{- end }}

{{/* The environment. extraEnv overrides the chart's variables, because the API rejects duplicates. */}}
{{- define "nereid.env" -}}
{{- $given := list }}
{{- range .Values.extraEnv }}{{ $given = append $given .name }}{{ end }}
{{- $own := list }}
{{- /* Models write to /tmp, because the root is read-only. */}}
{{- if not (has "HOME" $given) }}{{ $own = append $own (dict "name" "HOME" "value" "/tmp") }}{{ end }}
{{- $limit := dict "resourceFieldRef" (dict "resource" "limits.cpu") }}
{{- range list "OMP_NUM_THREADS" "MKL_NUM_THREADS" "OPENBLAS_NUM_THREADS" }}
{{- if has . $given }}
{{- else if $.Values.server.ompThreads }}{{ $own = append $own (dict "name" . "value" (int64 $.Values.server.ompThreads | toString)) }}
{{- else if dig "limits" "cpu" "" $.Values.resources }}{{ $own = append $own (dict "name" . "valueFrom" $limit) }}
{{- end }}
{{- end }}
{{- if eq (include "nereid.source" .) "store" }}
{{- range list "TRITON_AWS_MOUNT_DIRECTORY" "TRITON_GCS_MOUNT_DIRECTORY" "TRITON_AZURE_MOUNT_DIRECTORY" }}
{{- if not (has . $given) }}{{ $own = append $own (dict "name" . "value" $.Values.models.path) }}{{ end }}
{{- end }}
{{- end }}
{{- concat $own .Values.extraEnv | toYaml }}
{{- end }}

{{/* A probe of an HTTP path, unless the values define another one. */}}
{{- define "nereid.probe" -}}
{{- $path := index . 0 }}
{{- $given := index . 1 }}
{{- if not (or $given.exec $given.grpc $given.tcpSocket) }}
{{- $given = mergeOverwrite (dict "httpGet" (dict "path" $path "port" "http")) $given }}
{{- end }}
{{- toYaml $given }}
{{- end }}

{{/* Rejects flags that must be set by values, because other objects depend on them. */}}
{{- define "nereid.checkArgs" -}}
{{- $values := dict "--http-port" "ports.http" "--grpc-port" "ports.grpc" "--metrics-port" "ports.metrics" "--exit-delay-secs" "server.exitDelaySeconds" "--exit-timeout-secs" "server.exitTimeoutSeconds" "--model-repository" "models" "--model-store" "models" "--model-control-mode" "server.modelControlMode" }}
{{- range $argument := .Values.server.extraArgs }}
{{- with get $values (splitList "=" $argument | first) }}
{{- fail (printf "server.extraArgs has %s, want the value %s: probes, ports and the time to end follow it" $argument .) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether an autoscaler determines the number of pods. */}}
{{- define "nereid.autoscaled" -}}
{{- if and .Values.autoscaling.hpa.enabled .Values.autoscaling.keda.enabled }}
{{- fail "autoscaling.hpa and autoscaling.keda are both enabled, want one: KEDA makes an HPA itself" }}
{{- end }}
{{- if or .Values.autoscaling.hpa.enabled .Values.autoscaling.keda.enabled }}true{{ end }}
{{- end }}

{{/* Checks an autoscaler's limits. */}}
{{- define "nereid.checkReplicas" -}}
{{- $of := index . 1 }}
{{- if gt (int64 $of.minReplicas) (int64 $of.maxReplicas) }}
{{- fail (printf "%s.minReplicas is %d, want at most %s.maxReplicas, which is %d" (index . 0) (int64 $of.minReplicas) (index . 0) (int64 $of.maxReplicas)) }}
{{- end }}
{{- end }}

{{/* The maximum number of pods. */}}
{{- define "nereid.mostReplicas" -}}
{{- if .Values.autoscaling.hpa.enabled }}{{ int64 .Values.autoscaling.hpa.maxReplicas }}
{{- else if .Values.autoscaling.keda.enabled }}{{ int64 .Values.autoscaling.keda.maxReplicas }}
{{- else }}{{ int64 .Values.replicaCount }}
{{- end }}
{{- end }}

{{/* The settings of git-sync, except its period. */}}
{{- define "nereid.gitSync" -}}
image: {{ .Values.models.git.image | quote }}
env:
  - { name: GITSYNC_REPO, value: {{ .Values.models.git.url | quote }} }
  - { name: GITSYNC_REF, value: {{ .Values.models.git.ref | quote }} }
  - { name: GITSYNC_ROOT, value: {{ .Values.models.path | quote }} }
  - { name: GITSYNC_LINK, value: current }
  - { name: GITSYNC_DEPTH, value: "1" }
  {{- with .Values.models.git.existingSecret }}
  - name: GITSYNC_USERNAME
    valueFrom: { secretKeyRef: { name: {{ . | quote }}, key: username, optional: true } }
  - name: GITSYNC_PASSWORD
    valueFrom: { secretKeyRef: { name: {{ . | quote }}, key: password, optional: true } }
  - { name: GITSYNC_SSH_KEY_FILE, value: /etc/git-secret/ssh }
  - { name: GITSYNC_SSH_KNOWN_HOSTS_FILE, value: /etc/git-secret/known_hosts }
  {{- end }}
securityContext:
  {{- /* ssh requires a user that the image knows, such as this one. */}}
  {{- $user := dict }}
  {{- if not .Values.openshift }}{{ $user = dict "runAsUser" 65533 "runAsGroup" 65533 }}{{ end }}
  {{- mergeOverwrite $user .Values.securityContext | toYaml | nindent 2 }}
volumeMounts:
  - { name: models, mountPath: {{ .Values.models.path | quote }} }
  - { name: tmp, mountPath: /tmp }
  {{- if .Values.models.git.existingSecret }}
  - { name: git-secret, mountPath: /etc/git-secret, readOnly: true }
  {{- end }}
{{- end }}

{{/* The share of time that the instances of each pod's busiest model execute, summed over the pods. */}}
{{- define "nereid.busyQuery" -}}
{{- $pods := printf "namespace=%q,pod=~%q" .Release.Namespace (include "nereid.pods" .) -}}
sum(max by (pod) (sum by (namespace, pod, model, version) (rate(nv_inference_compute_infer_duration_us{ {{ $pods }} }[2m]) * rate(nv_inference_exec_count{ {{ $pods }} }[2m]) / clamp_min(rate(nv_inference_request_success{ {{ $pods }} }[2m]), 0.001)) / 1e6 / count by (namespace, pod, model, version) (nereid_instance_resident_bytes{ {{ $pods }} })) or 0 * max by (pod) (nv_inference_pending_request_count{ {{ $pods }} }))
{{- end }}

{{/* Waiting requests of the whole workload. */}}
{{- define "nereid.pendingQuery" -}}
sum(nv_inference_pending_request_count{namespace="{{ .Release.Namespace }}",pod=~"{{ include "nereid.pods" . }}"})
{{- end }}
