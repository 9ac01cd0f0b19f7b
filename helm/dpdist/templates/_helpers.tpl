{{- define "dpdist.name" -}}
{{- .Values.fullnameOverride | default (printf "%s-%s" .Release.Name (.Values.nameOverride | default "dpdist")) | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* The work pool, and what tells this installation's deployments and limits from others on the same Prefect server. */}}
{{- define "dpdist.pool" -}}
{{- .Values.prefect.pool | default (include "dpdist.name" .) -}}
{{- end -}}

{{- define "dpdist.labels" -}}
app.kubernetes.io/name: dpdist
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Annotations of an object that has none of its own. */}}
{{- define "dpdist.annotations" -}}
{{- with .Values.commonAnnotations }}
annotations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Labels of a pod: (dict "root" . "component" name). */}}
{{- define "dpdist.podLabels" -}}
{{ include "dpdist.selector" . }}
{{- with .root.Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "dpdist.podAnnotations" -}}
{{- with .Values.podAnnotations }}
annotations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "dpdist.selector" -}}
app.kubernetes.io/name: dpdist
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Selects the pods of some components: (dict "root" . "components" list). */}}
{{- define "dpdist.components" -}}
matchLabels:
  app.kubernetes.io/name: dpdist
  app.kubernetes.io/instance: {{ .root.Release.Name }}
matchExpressions:
  - {key: app.kubernetes.io/component, operator: In, values: [{{ join ", " .components }}]}
{{- end -}}

{{- define "dpdist.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The account of a part: (dict "root" . "of" "service", "dask" or "" for what needs no rights). */}}
{{- define "dpdist.serviceAccount" -}}
{{- $own := .root.Values.serviceAccount -}}
{{- if .of }}{{ $own = (get .root.Values .of).serviceAccount }}{{ end -}}
{{- if .root.Values.serviceAccount.create -}}
{{ $own.name | default (ternary (printf "%s-%s" (include "dpdist.name" .root) .of) (include "dpdist.name" .root) (ne .of "")) }}
{{- else -}}
{{ $own.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "dpdist.scheduler" -}}
{{ ternary "tcp" "tls" .Values.dask.tls.disabled }}://{{ include "dpdist.name" . }}-scheduler:8786
{{- end -}}

{{- define "dpdist.podSecurity" -}}
runAsNonRoot: true
{{- with .Values.runAsUser }}
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "dpdist.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* What a job or a test may take, which the values do not say. */}}
{{- define "dpdist.jobResources" -}}
requests: {cpu: 100m, memory: 256Mi, ephemeral-storage: 64Mi}
limits: {cpu: "1", memory: 2Gi, ephemeral-storage: 2Gi}
{{- end -}}

{{/* A scratch folder of a pod that holds no more than its container may: (dict "resources" <of the container>). */}}
{{- define "dpdist.tmpVolume" -}}
- name: tmp
  emptyDir: {sizeLimit: {{ get .resources.limits "ephemeral-storage" }}}
{{- end -}}

{{/* What pods see that reach the ledger: the file with its URL, and how the database's certificate is checked. */}}
{{- define "dpdist.ledgerEnv" -}}
- {name: DPDIST_LEDGER_FILE, value: /run/dpdist/ledger/{{ .Values.ledger.key }}}
- {name: PGSSLMODE, value: {{ .Values.ledger.tls.mode }}}
{{- if .Values.ledger.tls.existingSecret }}
- {name: PGSSLROOTCERT, value: /run/dpdist/ledger-ca/{{ .Values.ledger.tls.key }}}
{{- else if hasPrefix "verify" .Values.ledger.tls.mode }}
- {name: PGSSLROOTCERT, value: /etc/ssl/certs/ca-certificates.crt}
{{- end }}
{{- end -}}

{{/* Of the whole context, or of (dict "Values" .Values "volume" <with the URL of another login>). */}}
{{- define "dpdist.ledgerMounts" -}}
- {name: {{ .volume | default "ledger" }}, mountPath: /run/dpdist/ledger, readOnly: true}
{{- if .Values.ledger.tls.existingSecret }}
- {name: ledger-ca, mountPath: /run/dpdist/ledger-ca, readOnly: true}
{{- end }}
{{- end -}}

{{/* (dict "root" . "secret" <of the URL>) */}}
{{- define "dpdist.ledgerVolumes" -}}
- name: ledger
  secret: {secretName: {{ .secret }}, defaultMode: 0440}
{{- with .root.Values.ledger.tls.existingSecret }}
- name: ledger-ca
  secret: {secretName: {{ . }}, items: [{key: {{ $.root.Values.ledger.tls.key }}, path: {{ $.root.Values.ledger.tls.key }}}], defaultMode: 0440}
{{- end }}
{{- end -}}

{{/* What every pod sees: nothing secret. */}}
{{- define "dpdist.plainEnv" -}}
- {name: HOME, value: /tmp}
- {name: DO_NOT_TRACK, value: "1"}
- {name: PREFECT_SERVER_ANALYTICS_ENABLED, value: "false"}
{{- end -}}

{{/* The same, with settings of yours that may be secret: not for what Prefect commands. */}}
{{- define "dpdist.baseEnv" -}}
{{ include "dpdist.plainEnv" . }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Environment from ConfigMaps and Secrets of yours, for every container of dpdist but those that Prefect commands. */}}
{{- define "dpdist.envFrom" -}}
{{- with .Values.extraEnvFrom }}
envFrom: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* What pods see that talk to Prefect's server. */}}
{{- define "dpdist.prefectEnv" -}}
{{ include "dpdist.plainEnv" . }}
{{- with .Values.prefect.extraEnv }}
{{ toYaml . }}
{{- end }}
- {name: PREFECT_API_URL, value: {{ .Values.prefect.apiUrl | quote }}}
- {name: PREFECT_HOME, value: /tmp/prefect}
- {name: DPDIST_INSTALLATION, value: {{ include "dpdist.name" . | quote }}}
{{- with .Values.prefect.auth }}
{{- if .existingSecret }}
- name: {{ ternary "PREFECT_API_KEY" "PREFECT_API_AUTH_STRING" (eq .kind "apiKey") }}
  valueFrom: {secretKeyRef: {name: {{ .existingSecret }}, key: {{ .key }}}}
{{- end }}
{{- end }}
{{- end -}}

{{/* What pods see that read and write the store. */}}
{{- define "dpdist.storeEnv" -}}
{{ include "dpdist.baseEnv" . }}
{{- with .Values.store.url }}
- {name: DPDIST_STORE, value: {{ . | quote }}}
{{- end }}
{{- with .Values.store.endpoint }}
- {name: AWS_ENDPOINT, value: {{ . | quote }}}
{{- end }}
{{- if .Values.store.allowHttp }}
- {name: AWS_ALLOW_HTTP, value: "true"}
{{- end }}
{{- if hasPrefix "s3" .Values.store.url }}
- {name: AWS_REGION, value: {{ .Values.store.region | quote }}}
{{- end }}
{{- range $name, $value := .Values.store.environment }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- if .Values.store.existingSecret }}
{{- range .Values.store.secretKeys }}
- name: {{ . }}
  valueFrom: {secretKeyRef: {name: {{ $.Values.store.existingSecret }}, key: {{ . }}}}
{{- end }}
{{- end }}
{{- end -}}

{{/* Dask: connections by TLS in both directions, one certificate for all roles; HTTP answers probes and nothing else. */}}
{{- define "dpdist.daskEnv" -}}
- {name: DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES, value: '["distributed.http.health"]'}
- {name: DASK_DISTRIBUTED__WORKER__HTTP__ROUTES, value: '["distributed.http.health"]'}
{{- if .Values.dask.tls.disabled }}
- {name: DPDIST_ENGINE_WITHOUT_TLS, value: "1"}
{{- else }}
- {name: DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION, value: "true"}
- {name: DASK_DISTRIBUTED__COMM__TLS__CA_FILE, value: /run/dpdist/tls/ca.crt}
{{- range list "SCHEDULER" "WORKER" "CLIENT" }}
- {name: DASK_DISTRIBUTED__COMM__TLS__{{ . }}__CERT, value: /run/dpdist/tls/tls.crt}
- {name: DASK_DISTRIBUTED__COMM__TLS__{{ . }}__KEY, value: /run/dpdist/tls/tls.key}
{{- end }}
{{- end }}
{{- end -}}

{{- define "dpdist.prefectEnvFrom" -}}
{{- with .Values.prefect.extraEnvFrom }}
envFrom: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "dpdist.tlsSecret" -}}
{{- if .Values.dask.tls.certManager.enabled -}}
{{ include "dpdist.name" . }}-dask
{{- else -}}
{{ .Values.dask.tls.existingSecret }}
{{- end -}}
{{- end -}}

{{- define "dpdist.extraMounts" -}}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "dpdist.extraVolumes" -}}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "dpdist.daskMount" -}}
{{- if include "dpdist.tlsSecret" . }}
- {name: tls, mountPath: /run/dpdist/tls, readOnly: true}
{{- end }}
{{- end -}}

{{- define "dpdist.daskVolume" -}}
{{- if include "dpdist.tlsSecret" . }}
- name: tls
  secret: {secretName: {{ include "dpdist.tlsSecret" . }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{/* Where specs lie in every container that sees them. */}}
{{- define "dpdist.specs" -}}
{{ .Values.shared.mountPath }}/specs
{{- end -}}

{{/* Read-only: whoever may write specs decides what is released. */}}
{{- define "dpdist.specsMount" -}}
{{- if .Values.service.specs.configMap -}}
- {name: specs, mountPath: {{ include "dpdist.specs" . }}, readOnly: true}
{{- else -}}
- {name: shared, mountPath: {{ include "dpdist.specs" . }}, subPath: specs, readOnly: true}
{{- end }}
{{- end -}}

{{- define "dpdist.specsVolume" -}}
{{- if .Values.service.specs.configMap }}
- name: specs
  configMap: {name: {{ .Values.service.specs.configMap }}}
{{- end }}
{{- end -}}

{{/* What the measuring service's pod sees: the key and the ledger's URL as files, store, cluster. */}}
{{- define "dpdist.serviceEnv" -}}
{{ include "dpdist.storeEnv" . }}
- {name: DPDIST_HOME, value: {{ if .Values.shared.existingClaim }}{{ printf "%s/dpdist" .Values.shared.mountPath }}{{ else }}/tmp/dpdist{{ end }}}
- {name: DPDIST_ROOT_KEY_FILE, value: /run/dpdist/key/{{ .Values.rootKey.key }}}
{{ include "dpdist.ledgerEnv" . }}
- {name: DPDIST_OUTPUT, value: {{ .Values.output.url | default (printf "%s/releases" .Values.shared.mountPath) | quote }}}
{{- with .Values.logs }}
- {name: DPDIST_LOG, value: {{ . | quote }}}
{{- end }}
{{- if .Values.dask.enabled }}
- {name: DPDIST_ENGINE, value: {{ include "dpdist.scheduler" . | quote }}}
{{ include "dpdist.daskEnv" . }}
{{- end }}
{{- end -}}

{{- define "dpdist.serviceMounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: key, mountPath: /run/dpdist/key, readOnly: true}
{{ include "dpdist.ledgerMounts" . }}
{{- if .Values.dask.enabled }}
{{- include "dpdist.daskMount" . }}
{{- end }}
{{- if .Values.shared.existingClaim }}
- {name: shared, mountPath: {{ .Values.shared.mountPath }}}
{{- end }}
{{ include "dpdist.specsMount" . }}
{{- include "dpdist.extraMounts" . }}
{{- end -}}

{{- define "dpdist.serviceVolumes" -}}
- name: key
  secret: {secretName: {{ .Values.rootKey.existingSecret }}, defaultMode: 0400}
{{ include "dpdist.ledgerVolumes" (dict "root" . "secret" .Values.ledger.existingSecret) }}
{{- if .Values.dask.enabled }}
{{- include "dpdist.daskVolume" . }}
{{- end }}
{{- if .Values.shared.existingClaim }}
- name: shared
  persistentVolumeClaim: {claimName: {{ .Values.shared.existingClaim }}}
{{- end }}
{{- include "dpdist.specsVolume" . }}
{{- include "dpdist.extraVolumes" . }}
{{- end -}}

{{/* What a client of the measuring service sees: where it is, how to know it, a token to show. */}}
{{- define "dpdist.clientEnv" -}}
- {name: DPDIST_HOME, value: /tmp/dpdist}
- {name: DPDIST_SERVICE, value: "https://{{ include "dpdist.name" . }}-service:8443"}
- {name: DPDIST_SERVICE_CA_FILE, value: /run/dpdist/service/ca.crt}
- {name: DPDIST_SERVICE_TOKEN_FILE, value: /run/dpdist/service/token}
{{- end -}}

{{- define "dpdist.clientVolume" -}}
- name: service
  secret:
    secretName: {{ .Values.service.existingSecret }}
    defaultMode: 0440
    items: [{key: ca.crt, path: ca.crt}, {key: token, path: token}]
{{- end -}}

{{/* Where a pod goes: (dict "root" . "own" <values of the component>); what the component does not say, the chart's values say. */}}
{{- define "dpdist.placement" -}}
{{- range $field := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
{{- with (get $.own $field | default (get $.root.Values $field)) }}
{{ $field }}: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with (get .own "priorityClassName" | default .root.Values.priorityClassName) }}
priorityClassName: {{ . }}
{{- end }}
{{- range $field := list "hostAliases" "dnsConfig" }}
{{- with (get $.root.Values $field) }}
{{ $field }}: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- range $field := list "dnsPolicy" "runtimeClassName" }}
{{- with (get $.root.Values $field) }}
{{ $field }}: {{ . }}
{{- end }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
