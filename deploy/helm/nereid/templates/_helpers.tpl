{{- define "nereid.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "nereid.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- $name := include "nereid.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "nereid.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "nereid.selectorLabels" -}}
app.kubernetes.io/name: {{ include "nereid.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Those of the test's pod, which no selector of the servers' pods may find: the autoscaler and the disruption budget would count it. */}}
{{- define "nereid.testLabels" -}}
app.kubernetes.io/name: {{ include "nereid.name" . | trunc 58 | trimSuffix "-" }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "nereid.labels" -}}
helm.sh/chart: {{ include "nereid.chart" . }}
{{ include "nereid.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: inference-server
app.kubernetes.io/part-of: {{ include "nereid.name" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
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

{{/* How many seconds a pod may take to end. */}}
{{- define "nereid.grace" -}}
{{- $needed := add .Values.preStopSleepSeconds .Values.server.exitDelaySeconds .Values.server.exitTimeoutSeconds 5 | int }}
{{- $grace := .Values.terminationGracePeriodSeconds | int }}
{{- if and $grace (lt $grace $needed) }}
{{- fail (printf "terminationGracePeriodSeconds is %d, want 0 or at least %d: preStopSleepSeconds + server.exitDelaySeconds + server.exitTimeoutSeconds + 5" $grace $needed) }}
{{- end }}
{{- if $grace }}{{ $grace }}{{ else }}{{ max 60 $needed }}{{ end }}
{{- end }}

{{/* volume, image, git, store or none. */}}
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

{{/* An autoscaler decides how many pods there are. */}}
{{- define "nereid.autoscaled" -}}
{{- if and .Values.autoscaling.hpa.enabled .Values.autoscaling.keda.enabled }}
{{- fail "autoscaling.hpa and autoscaling.keda are both enabled, want one: KEDA makes an HPA itself" }}
{{- end }}
{{- if or .Values.autoscaling.hpa.enabled .Values.autoscaling.keda.enabled }}true{{ end }}
{{- end }}

{{/* The most pods there can be. */}}
{{- define "nereid.mostReplicas" -}}
{{- if .Values.autoscaling.hpa.enabled }}{{ .Values.autoscaling.hpa.maxReplicas }}
{{- else if .Values.autoscaling.keda.enabled }}{{ .Values.autoscaling.keda.maxReplicas }}
{{- else }}{{ .Values.replicaCount }}
{{- end }}
{{- end }}

{{/* What git-sync is told, but for how often. */}}
{{- define "nereid.gitSync" -}}
image: {{ .Values.models.git.image }}
env:
  - { name: GITSYNC_REPO, value: {{ .Values.models.git.url | quote }} }
  - { name: GITSYNC_REF, value: {{ .Values.models.git.ref | quote }} }
  - { name: GITSYNC_ROOT, value: {{ .Values.models.path | quote }} }
  - { name: GITSYNC_LINK, value: current }
  - { name: GITSYNC_DEPTH, value: "1" }
  {{- with .Values.models.git.existingSecret }}
  - name: GITSYNC_USERNAME
    valueFrom: { secretKeyRef: { name: {{ . }}, key: username, optional: true } }
  - name: GITSYNC_PASSWORD
    valueFrom: { secretKeyRef: { name: {{ . }}, key: password, optional: true } }
  - { name: GITSYNC_SSH_KEY_FILE, value: /etc/git-secret/ssh }
  - { name: GITSYNC_SSH_KNOWN_HOSTS_FILE, value: /etc/git-secret/known_hosts }
  {{- end }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - { name: models, mountPath: {{ .Values.models.path | quote }} }
  - { name: tmp, mountPath: /tmp }
  {{- if .Values.models.git.existingSecret }}
  - { name: git-secret, mountPath: /etc/git-secret, readOnly: true }
  {{- end }}
{{- end }}

{{/* The share of time that instances of each pod's busiest model execute, summed over the pods. */}}
{{- define "nereid.busyQuery" -}}
{{- $pods := printf "namespace=%q,pod=~%q" .Release.Namespace (printf "%s-.*" (include "nereid.fullname" .)) -}}
sum(max by (pod) (sum by (namespace, pod, model, version) (rate(nv_inference_compute_infer_duration_us{ {{ $pods }} }[2m]) * rate(nv_inference_exec_count{ {{ $pods }} }[2m]) / clamp_min(rate(nv_inference_request_success{ {{ $pods }} }[2m]), 0.001)) / 1e6 / count by (namespace, pod, model, version) (nereid_instance_resident_bytes{ {{ $pods }} })) or 0 * max by (pod) (nv_inference_pending_request_count{ {{ $pods }} }))
{{- end }}

{{/* Requests that wait, as one number for the whole workload. */}}
{{- define "nereid.pendingQuery" -}}
sum(nv_inference_pending_request_count{namespace="{{ .Release.Namespace }}",pod=~"{{ include "nereid.fullname" . }}-.*"})
{{- end }}
