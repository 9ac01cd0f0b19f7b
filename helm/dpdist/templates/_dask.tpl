{{/* Pod of a Dask scheduler. */}}
{{- define "dpdist.schedulerPod" -}}
serviceAccountName: {{ include "dpdist.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{ include "dpdist.podSecurity" . | nindent 2 }}
{{- include "dpdist.placement" . }}
containers:
  - name: scheduler
    image: {{ include "dpdist.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: [dask, scheduler, --port, "8786", --dashboard-address, ":8787"]
    env: {{ include "dpdist.storeEnv" . | nindent 6 }}
    ports:
      - {name: tcp-comm, containerPort: 8786}
      - {name: http-dashboard, containerPort: 8787}
    readinessProbe:
      httpGet: {path: /health, port: http-dashboard}
      periodSeconds: 5
    livenessProbe:
      httpGet: {path: /health, port: http-dashboard}
      periodSeconds: 30
      initialDelaySeconds: 15
    securityContext: {{ include "dpdist.containerSecurity" . | nindent 6 }}
    resources: {{ toYaml .Values.dask.scheduler.resources | nindent 6 }}
    volumeMounts: [{name: tmp, mountPath: /tmp}]
volumes: [{name: tmp, emptyDir: {}}]
{{- end -}}

{{/* Pod of a Dask worker: (dict "root" . "group" <values of workers or optimiser> "optimiser" bool). It sees no key and no ledger. */}}
{{- define "dpdist.daskWorkerPod" -}}
serviceAccountName: {{ include "dpdist.serviceAccount" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
terminationGracePeriodSeconds: 30
securityContext: {{ include "dpdist.podSecurity" .root | nindent 2 }}
{{- include "dpdist.placement" .root }}
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
      - --dashboard-address
      - ":8788"
      {{- if .optimiser }}
      - --resources
      - optimiser=1
      {{- end }}
    env: {{ include "dpdist.storeEnv" .root | nindent 6 }}
      - name: MEMORY_LIMIT
        valueFrom: {resourceFieldRef: {containerName: worker, resource: limits.memory}}
    ports: [{name: http-dashboard, containerPort: 8788}]
    livenessProbe:
      httpGet: {path: /health, port: http-dashboard}
      periodSeconds: 30
      initialDelaySeconds: 30
    securityContext: {{ include "dpdist.containerSecurity" .root | nindent 6 }}
    resources: {{ toYaml .group.resources | nindent 6 }}
    volumeMounts:
      - {name: tmp, mountPath: /tmp}
      - {name: shared, mountPath: {{ .root.Values.shared.mountPath }}}
volumes:
  - {name: tmp, emptyDir: {}}
  - name: shared
    persistentVolumeClaim: {claimName: {{ .root.Values.shared.existingClaim }}}
{{- end -}}
