{{/* Pod of a Dask scheduler. */}}
{{- define "dpdist.schedulerPod" -}}
serviceAccountName: {{ include "dpdist.serviceAccount" (dict "root" . "of" "") }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{ include "dpdist.podSecurity" . | nindent 2 }}
{{- include "dpdist.placement" (dict "root" . "own" .Values.dask.scheduler) }}
containers:
  - name: scheduler
    image: {{ include "dpdist.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: [dask, scheduler, --protocol, {{ ternary "tcp" "tls" .Values.dask.tls.disabled }}, --port, "8786", --no-dashboard, --dashboard-address, ":8787"]
    env:
      {{- include "dpdist.baseEnv" . | nindent 6 }}
      {{- include "dpdist.daskEnv" . | nindent 6 }}
    ports:
      - {name: tcp-comm, containerPort: 8786}
      - {name: http-dashboard, containerPort: 8787}
    readinessProbe:
      httpGet: {path: /health, port: http-dashboard}
      periodSeconds: 5
      timeoutSeconds: 10
    livenessProbe:
      httpGet: {path: /health, port: http-dashboard}
      periodSeconds: 30
      timeoutSeconds: 10
      failureThreshold: 6
      initialDelaySeconds: 15
    {{- include "dpdist.envFrom" . | nindent 4 }}
    securityContext: {{ include "dpdist.containerSecurity" . | nindent 6 }}
    resources: {{ toYaml .Values.dask.scheduler.resources | nindent 6 }}
    volumeMounts:
      - {name: tmp, mountPath: /tmp}
      {{- include "dpdist.daskMount" . | trim | nindent 6 }}
      {{- include "dpdist.extraMounts" . | trim | nindent 6 }}
volumes:
  {{- include "dpdist.tmpVolume" (dict "resources" .Values.dask.scheduler.resources) | nindent 2 }}
  {{- include "dpdist.daskVolume" . | trim | nindent 2 }}
  {{- include "dpdist.extraVolumes" . | trim | nindent 2 }}
{{- end -}}

{{/* Pod of a Dask worker: (dict "root" . "group" <its values> "resource" name or ""). Only one that draws noise sees a key and a ledger. */}}
{{- define "dpdist.daskWorkerPod" -}}
serviceAccountName: {{ include "dpdist.serviceAccount" (dict "root" .root "of" "dask") }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: 30
securityContext: {{ include "dpdist.podSecurity" .root | nindent 2 }}
{{- include "dpdist.placement" (dict "root" .root "own" .group) }}
containers:
  - name: worker
    image: {{ include "dpdist.image" .root }}
    imagePullPolicy: {{ .root.Values.image.pullPolicy }}
    args:
      - dask
      - worker
      - {{ include "dpdist.scheduler" .root | quote }}
      - --nthreads
      - {{ .group.threads | quote }}
      - --memory-limit
      - $(MEMORY_LIMIT)
      - --local-directory
      - /tmp
      - --no-dashboard
      - --dashboard-address
      - ":8788"
      {{- if .resource }}
      - --resources
      - {{ printf "%s=%d" .resource (ternary (int .group.threads) 1 (eq .resource "noise")) }}
      {{- end }}
    env:
      {{- include "dpdist.storeEnv" .root | nindent 6 }}
      {{- if eq .resource "noise" }}
      - {name: DPDIST_HOME, value: /tmp/dpdist}
      - {name: DPDIST_ROOT_KEY_FILE, value: /run/dpdist/key/{{ .root.Values.rootKey.key }}}
      {{- include "dpdist.ledgerEnv" .root | nindent 6 }}
      {{- end }}
      {{- include "dpdist.daskEnv" .root | nindent 6 }}
      - name: MEMORY_LIMIT
        valueFrom: {resourceFieldRef: {containerName: worker, resource: limits.memory}}
    ports: [{name: http-dashboard, containerPort: 8788}]
    livenessProbe:
      httpGet: {path: /health, port: http-dashboard}
      periodSeconds: 30
      timeoutSeconds: 10
      failureThreshold: 6
      initialDelaySeconds: 30
    {{- include "dpdist.envFrom" .root | nindent 4 }}
    securityContext: {{ include "dpdist.containerSecurity" .root | nindent 6 }}
    resources: {{ toYaml .group.resources | nindent 6 }}
    volumeMounts:
      - {name: tmp, mountPath: /tmp}
      {{- if .root.Values.shared.existingClaim }}
      - {name: shared, mountPath: {{ .root.Values.shared.mountPath }}, readOnly: {{ not (regexMatch "^(file|/)" .root.Values.store.url) }}}
      {{- end }}
      {{- if eq .resource "noise" }}
      - {name: key, mountPath: /run/dpdist/key, readOnly: true}
      {{- include "dpdist.ledgerMounts" .root | nindent 6 }}
      {{- end }}
      {{- include "dpdist.daskMount" .root | trim | nindent 6 }}
      {{- include "dpdist.extraMounts" .root | trim | nindent 6 }}
volumes:
  {{- include "dpdist.tmpVolume" (dict "resources" .group.resources) | nindent 2 }}
  {{- include "dpdist.daskVolume" .root | trim | nindent 2 }}
  {{- include "dpdist.extraVolumes" .root | trim | nindent 2 }}
  {{- if .root.Values.shared.existingClaim }}
  - name: shared
    persistentVolumeClaim: {claimName: {{ .root.Values.shared.existingClaim }}}
  {{- end }}
  {{- if eq .resource "noise" }}
  - name: key
    secret: {secretName: {{ .root.Values.rootKey.existingSecret }}, defaultMode: 0400}
  {{- include "dpdist.ledgerVolumes" (dict "root" .root "secret" .group.ledgerSecret) | nindent 2 }}
  {{- end }}
{{- end -}}
