# In place of MinIO: an S3 server that honours conditional writes, from PyPI, on the image of dpdist.
ARG BASE=dpdist:0.2.0
FROM ${BASE}
USER 0
RUN pip --python /opt/dpdist/bin/python install --quiet --no-cache-dir "moto[server]>=5,<6"
USER 10001:10001
CMD ["moto_server", "--host", "0.0.0.0", "--port", "9000"]
