# In place of the image python:3.11-slim where no registry is reached; the build context holds a minimal Debian with Python as base.tar.
FROM scratch
ADD base.tar /
RUN ln -sf /usr/bin/python3 /usr/local/bin/python
