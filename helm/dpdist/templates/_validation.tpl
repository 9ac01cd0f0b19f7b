{{/* Combinations that cannot work are refused here, with the cure. */}}
{{- define "dpdist.validate" -}}
{{- if not .Values.rootKey.existingSecret -}}
{{- fail "rootKey.existingSecret is empty: make one with 'kubectl create secret generic dpdist-root-key --from-file=root.key' (dpdist keys init writes the file) and name it; the chart never makes or shows a key" -}}
{{- end -}}
{{- if not .Values.ledger.existingSecret -}}
{{- fail "ledger.existingSecret is empty: name a Secret whose entry 'url' is postgresql+psycopg://user:password@host:5432/database" -}}
{{- end -}}
{{- if not .Values.service.existingSecret -}}
{{- fail (printf "service.existingSecret is empty: name a Secret with token, ca.crt, tls.crt and tls.key, a certificate for %s-service (docs/operations.md says how to make it)" (include "dpdist.name" .)) -}}
{{- end -}}
{{- if eq .Values.service.existingSecret .Values.dask.tls.existingSecret -}}
{{- fail "service.existingSecret and dask.tls.existingSecret are the same: Prefect's worker sees a part of the former, and whoever holds the latter runs code in the service; make two Secrets" -}}
{{- end -}}
{{- if not .Values.prefect.apiUrl -}}
{{- fail "prefect.apiUrl is empty: give the API of a running Prefect server, for example http://prefect-server:4200/api" -}}
{{- end -}}
{{- if and .Values.dask.enabled (not .Values.store.url) -}}
{{- fail "dask.enabled needs store.url (s3://bucket/prefix): workers in other pods cannot reach a folder of this one; set it, or dask.enabled=false" -}}
{{- end -}}
{{- if and .Values.dask.enabled (not .Values.shared.existingClaim) (regexMatch "^(file|/)" .Values.store.url) -}}
{{- fail "dask.enabled with a store in a folder needs shared.existingClaim, a ReadWriteMany volume that holds it; set it, or give store.url of an object store" -}}
{{- end -}}
{{- if and .Values.store.url (not (regexMatch "^(s3|gs|az|file|/)" .Values.store.url)) -}}
{{- fail (printf "store.url %q is no object store URL: give s3://bucket/prefix, gs:// or az://" .Values.store.url) -}}
{{- end -}}
{{- if and .Values.store.allowHttp (not .Values.store.endpoint) -}}
{{- fail "store.allowHttp is for an S3-compatible store inside the cluster: set store.endpoint, too" -}}
{{- end -}}
{{- if and (not .Values.shared.existingClaim) (or (not .Values.store.url) (not .Values.output.url)) -}}
{{- fail "measurements and releases would be lost with the pod: set shared.existingClaim, or store.url and output.url" -}}
{{- end -}}
{{- if and (not .Values.service.specs.configMap) (not .Values.shared.existingClaim) -}}
{{- fail "the measuring service has no specs: name a ConfigMap of them in service.specs.configMap, or a volume with the folder 'specs' in shared.existingClaim" -}}
{{- end -}}
{{- if and .Values.output.url (not (regexMatch "^(s3://|gs://|az://|/)" .Values.output.url)) -}}
{{- fail (printf "output.url %q is neither an object store URL nor a folder: give s3://bucket/prefix, gs://, az:// or /path" .Values.output.url) -}}
{{- end -}}
{{- if and .Values.dask.tls.certManager.enabled (or .Values.dask.tls.existingSecret .Values.dask.tls.disabled) -}}
{{- fail "dask.tls.certManager excludes dask.tls.existingSecret and dask.tls.disabled: leave them out" -}}
{{- end -}}
{{- if and .Values.dask.tls.certManager.enabled (not .Values.dask.tls.certManager.issuerRef.name) -}}
{{- fail "dask.tls.certManager.issuerRef.name is empty: name an Issuer whose authority signs for this cluster only" -}}
{{- end -}}
{{- if and (or .Values.ledger.roles.noise .Values.ledger.roles.metrics) (not .Values.ledger.roles.application) -}}
{{- fail "ledger.roles.noise and ledger.roles.metrics go with ledger.roles.application: name that role, too" -}}
{{- end -}}
{{- if and .Values.monitoring.enabled .Values.ledger.roles.application (not .Values.monitoring.ledgerSecret) -}}
{{- fail "monitoring.ledgerSecret is empty: the exporter would have a login that may charge; name a Secret with the URL of a login that reads only (ledger.roles.metrics)" -}}
{{- end -}}
{{- if and .Values.ledger.roles.application (not .Values.ledger.ownerSecret) -}}
{{- fail "ledger.roles.application needs ledger.ownerSecret, a Secret with the owner's URL: the application's own login cannot grant" -}}
{{- end -}}
{{- if and .Values.ledger.embedded.enabled (ne .Values.ledger.tls.mode "disable") -}}
{{- fail (printf "ledger.embedded has no certificate, and ledger.tls.mode is %q: set ledger.tls.mode=disable for the trial, or name a database of your own" .Values.ledger.tls.mode) -}}
{{- end -}}
{{- if and (eq .Values.ledger.tls.mode "verify-ca") (not .Values.ledger.tls.existingSecret) -}}
{{- fail "ledger.tls.mode=verify-ca would accept any server that any public authority has certified: name a Secret with your authority's certificate in ledger.tls.existingSecret, or set ledger.tls.mode=verify-full" -}}
{{- end -}}
{{- if and .Values.ledger.tls.existingSecret (eq .Values.ledger.tls.mode "disable") -}}
{{- fail "ledger.tls.existingSecret and ledger.tls.mode=disable exclude each other: leave one out" -}}
{{- end -}}
{{- if and .Values.dask.enabled (not .Values.dask.tls.existingSecret) (not .Values.dask.tls.certManager.enabled) (not .Values.dask.tls.disabled) -}}
{{- fail "dask.tls.existingSecret is empty: whoever reached the scheduler's port could run code on the workers; name a Secret with ca.crt, tls.crt and tls.key (docs/operations.md says how to make one), enable dask.tls.certManager, or accept it with dask.tls.disabled=true" -}}
{{- end -}}
{{- if and .Values.dask.tls.existingSecret .Values.dask.tls.disabled -}}
{{- fail "dask.tls.existingSecret and dask.tls.disabled exclude each other: leave one out" -}}
{{- end -}}
{{- if and .Values.monitoring.enabled .Values.networkPolicy.enabled (not .Values.monitoring.from) -}}
{{- fail "monitoring.from is empty: the network policy would keep Prometheus out; name the peers that may ask for metrics, such as {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}" -}}
{{- end -}}
{{- if and (gt (int .Values.dask.noise.replicas) 0) (not .Values.dask.noise.ledgerSecret) -}}
{{- fail "dask.noise.ledgerSecret is empty: noise workers ask the ledger before they draw; name a Secret with the URL of a login that reads salts only (ledger.roles.noise), or set dask.noise.replicas=0" -}}
{{- end -}}
{{- if and (gt (int .Values.dask.noise.replicas) 0) .Values.dask.tls.disabled -}}
{{- fail "dask.noise and dask.tls.disabled exclude each other: whoever reached the scheduler's port could read the root key; give dask.tls a certificate, or set dask.noise.replicas=0" -}}
{{- end -}}
{{- if and .Values.dask.workers.autoscaling.enabled (lt (int .Values.dask.workers.autoscaling.maxReplicas) (int .Values.dask.workers.replicas)) -}}
{{- fail (printf "dask.workers.autoscaling.maxReplicas (%d) is below dask.workers.replicas (%d): raise it" (int .Values.dask.workers.autoscaling.maxReplicas) (int .Values.dask.workers.replicas)) -}}
{{- end -}}
{{- if and (not .Values.shared.existingClaim) (hasPrefix "/" .Values.output.url) -}}
{{- fail (printf "output.url %q is a folder of one pod, and releases would be lost with it: set shared.existingClaim, a ReadWriteMany volume that holds it, or give output.url of an object store" .Values.output.url) -}}
{{- end -}}
{{- if and (not .Values.shared.existingClaim) (regexMatch "^(file|/)" .Values.store.url) -}}
{{- fail (printf "store.url %q is a folder of one pod, and measurements would be lost with it: set shared.existingClaim, a ReadWriteMany volume that holds it, or give store.url of an object store" .Values.store.url) -}}
{{- end -}}
{{- if .Values.networkPolicy.enabled -}}
{{- $api := include "dpdist.port" .Values.prefect.apiUrl -}}
{{- if not (has $api (toStrings .Values.networkPolicy.prefectEgressPorts)) -}}
{{- fail (printf "networkPolicy.prefectEgressPorts leaves out port %s of prefect.apiUrl (%s), so no flow could reach Prefect: add it" $api .Values.prefect.apiUrl) -}}
{{- end -}}
{{- $store := ternary (include "dpdist.port" .Values.store.endpoint) "443" (ne .Values.store.endpoint "") -}}
{{- if and (or .Values.store.endpoint (regexMatch "^(s3|gs|az)" .Values.store.url)) (not (has $store (toStrings .Values.networkPolicy.egressPorts))) -}}
{{- fail (printf "networkPolicy.egressPorts leaves out port %s of %s, so no store could be reached: add it" $store (ternary (printf "store.endpoint (%s)" .Values.store.endpoint) (printf "store.url (%s)" .Values.store.url) (ne .Values.store.endpoint ""))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The port of a URL, as it is written or as its scheme has it. */}}
{{- define "dpdist.port" -}}
{{- $host := (urlParse .).host -}}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $host) | default (ternary "443" "80" (hasPrefix "https:" .)) -}}
{{- end -}}
