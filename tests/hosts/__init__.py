"""Releases over several hosts: machines that share an S3 server and a network, and nothing else (make hosts)."""
