# In place of the image postgres where no registry is reached; the build context holds a minimal Debian with PostgreSQL as base.tar.
FROM scratch
ADD base.tar /
# the image postgres has its user postgres as 999
RUN usermod --uid 999 postgres && groupmod --gid 999 postgres && useradd --uid 10001 --no-create-home dpdist \
 && install -d -m 1777 /var/lib/postgresql/data /var/run/postgresql
COPY postgres.sh /usr/local/bin/postgres.sh
ENV PATH=/usr/lib/postgresql/15/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENTRYPOINT ["sh", "/usr/local/bin/postgres.sh"]
CMD ["postgres"]
