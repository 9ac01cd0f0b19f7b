# An S3 server whose writes honour conditions, for trials: what it holds is gone with its container.
FROM docker.io/library/python:3.11.14-slim-bookworm
RUN python -m venv /opt/moto && /opt/moto/bin/pip install --no-cache-dir "moto[server]"
USER 10001:10001
CMD ["/opt/moto/bin/moto_server", "--host", "0.0.0.0", "--port", "9000"]
