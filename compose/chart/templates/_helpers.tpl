{{/* Each takes a list: the root context, and the name of a component: guard, watch or audit. */}}

{{- define "harness.name" -}}
{{ printf "%s-%s" (index . 0).Release.Name (index . 1) | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- define "harness.selector" -}}
app.kubernetes.io/name: compaction-harness
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "harness.metadata" -}}
name: {{ include "harness.name" . }}
labels:
  {{- include "harness.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ (index . 0).Release.Service }}
  helm.sh/chart: {{ (index . 0).Chart.Name }}-{{ (index . 0).Chart.Version }}
{{- end }}

{{/* Arguments that every command has: the cluster, the login, the topics, and extraArgs. */}}
{{- define "harness.arguments" -}}
{{- $root := index . 0 }}
{{- $values := index $root.Values (index . 1) -}}
- --bootstrap-server
- {{ required "bootstrapServers is required: HOST:PORT,…" $root.Values.bootstrapServers | quote }}
{{- with $root.Values.clientSecret }}
- --command-config
- /etc/kafka-client/{{ $root.Values.clientPropertiesKey }}
{{- end }}
{{- range $values.topics }}
- --topic
- {{ . | quote }}
{{- end }}
{{- range $values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "harness.image" -}}
{{- $image := (index (index . 0).Values (index . 1)).image -}}
image: "{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}{{ end }}"
imagePullPolicy: {{ $image.pullPolicy }}
{{- end }}

{{- define "harness.container" -}}
{{- $root := index . 0 }}
{{- include "harness.image" . }}
resources:
  {{- toYaml (index $root.Values (index . 1)).resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  {{- if $root.Values.clientSecret }}
  - {name: client, mountPath: /etc/kafka-client, readOnly: true}
  {{- end }}
{{- end }}

{{/* Port and probes of an endpoint. Readiness is the health; a pod that stays unhealthy for ten minutes is restarted. */}}
{{- define "harness.endpoint" -}}
ports:
  - {name: metrics, containerPort: {{ index . 2 }}}
readinessProbe:
  httpGet: {path: /health, port: metrics}
  periodSeconds: 15
  timeoutSeconds: 5
livenessProbe:
  httpGet: {path: /health, port: metrics}
  periodSeconds: 30
  timeoutSeconds: 10
  failureThreshold: 20
{{- end }}

{{- define "harness.pod" -}}
{{- $root := index . 0 -}}
serviceAccountName: {{ $root.Values.serviceAccountName }}
automountServiceAccountToken: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "harness.volumes" -}}
{{- $root := index . 0 -}}
- name: tmp
  emptyDir: {sizeLimit: {{ (index $root.Values (index . 1)).tmpSizeLimit | default "256Mi" }}}
{{- with $root.Values.clientSecret }}
- name: client
  secret: {secretName: {{ . }}, defaultMode: 288}
{{- end }}
{{- end }}

{{/* A Service for metrics, also of pods that are not ready: an unhealthy one is what alerts are about. */}}
{{- define "harness.service" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "harness.metadata" . | nindent 2 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    {{- include "harness.selector" . | nindent 4 }}
  ports:
    - {name: metrics, port: {{ index . 2 }}, targetPort: metrics}
{{- end }}
