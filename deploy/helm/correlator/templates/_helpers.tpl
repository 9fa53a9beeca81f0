{{- define "correlator.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "correlator.selectorLabels" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* "+" is not allowed in labels and tags. */}}
{{- define "correlator.version" -}}
{{- .Chart.AppVersion | replace "+" "_" | trunc 63 -}}
{{- end -}}

{{- define "correlator.labels" -}}
{{ include "correlator.selectorLabels" . }}
app.kubernetes.io/version: {{ include "correlator.version" . | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "correlator.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default (include "correlator.version" .) .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "correlator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "correlator.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* The one place that has it is the agent's configuration. */}}
{{- define "correlator.metricsPort" -}}
{{- $address := index .Values.config "metrics-address" | default "" | toString -}}
{{- regexFind ":[0-9]+$" $address | trimPrefix ":" | required "config.metrics-address has no port: probes need it" -}}
{{- end -}}

{{/* What the configuration connects to. */}}
{{- define "correlator.connects" -}}
{{- $config := .Values.config -}}
{{- $otlp := $config.otlp | default dict -}}
{{- if or $otlp.destinations (index $config "otlp-endpoint") (index $config "live-connect") -}}true{{- end -}}
{{- end -}}
