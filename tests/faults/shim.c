/* Preloaded before libc: counts what a process does to files below a folder, kills it at the n-th time, and notes what it synced.

   fault_arm(root, kept, log, n): from now on, calls on files below root are counted; before the n-th one is done the process is
   killed, a write half-way. What a file held when it was synced is kept as kept/<inode>; the log has one line an event. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char root[PATH_MAX], kept[PATH_MAX];
static int logged = -1;
static atomic_long count, last;

void fault_arm(const char *below, const char *shadows, const char *log, long n) {
  snprintf(root, sizeof root, "%s/", below);
  snprintf(kept, sizeof kept, "%s", shadows);
  logged = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  atomic_store(&count, 0);
  atomic_store(&last, n);
}

long fault_count(void) { return atomic_load(&count); }

static int is_below(const char *path) { return root[0] && !strncmp(path, root, strlen(root) - 1); }

static int path_of(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, path, PATH_MAX - 1);
  path[size > 0 ? size : 0] = 0;
  return size > 0 && is_below(path);
}

static void absolute(int at, const char *name, char *path) {
  char folder[PATH_MAX];
  if (name[0] == '/') { snprintf(path, PATH_MAX, "%s", name); return; }
  if (at == AT_FDCWD) { if (!getcwd(folder, sizeof folder)) folder[0] = 0; } else path_of(at, folder);
  if (snprintf(path, PATH_MAX, "%s/%s", folder, name) >= PATH_MAX) path[0] = 0;
}

static void die(void) { kill(getpid(), SIGKILL); pause(); }

/* Whether this event is the last one. */
static int step(char what, const char *path, unsigned long inode) {
  char line[PATH_MAX + 64];
  long number = atomic_fetch_add(&count, 1) + 1;
  if (number == atomic_load(&last)) return 1;
  if (!what) return 0;
  int size = snprintf(line, sizeof line, "%c %lu %s\n", what, inode, path);
  if (syscall(SYS_write, logged, line, size) != size) die();
  return 0;
}

static unsigned long inode_of(int fd) { struct stat found; return fstat(fd, &found) ? 0 : found.st_ino; }

static void keep(int fd, unsigned long inode) {
  char source[64], target[PATH_MAX + 32], data[65536];
  struct stat found;
  if (fstat(fd, &found) || !S_ISREG(found.st_mode)) return;
  snprintf(source, sizeof source, "/proc/self/fd/%d", fd);
  snprintf(target, sizeof target, "%s/%lu", kept, inode);
  int in = open(source, O_RDONLY), out = open(target, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  for (ssize_t size; (size = read(in, data, sizeof data)) > 0;)
    if (syscall(SYS_write, out, data, size) != size) die();
  close(in); close(out);
}

#define REAL(type, name, ...) \
  static type (*real)(__VA_ARGS__); \
  if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

ssize_t write(int fd, const void *data, size_t size) {
  REAL(ssize_t, "write", int, const void *, size_t);
  char path[PATH_MAX];
  if (root[0] && path_of(fd, path) && step('W', path, inode_of(fd))) { real(fd, data, size / 2); die(); }
  return real(fd, data, size);
}

ssize_t writev(int fd, const struct iovec *data, int parts) {
  REAL(ssize_t, "writev", int, const struct iovec *, int);
  char path[PATH_MAX];
  if (root[0] && path_of(fd, path) && step('W', path, inode_of(fd))) die();
  return real(fd, data, parts);
}

#define PWRITE(name) \
  ssize_t name(int fd, const void *data, size_t size, off64_t at) { \
    REAL(ssize_t, #name, int, const void *, size_t, off64_t); \
    char path[PATH_MAX]; \
    if (root[0] && path_of(fd, path) && step('W', path, inode_of(fd))) { real(fd, data, size / 2, at); die(); } \
    return real(fd, data, size, at); \
  }
PWRITE(pwrite)
PWRITE(pwrite64)

#define SYNC(name) \
  int name(int fd) { \
    REAL(int, #name, int); \
    char path[PATH_MAX]; \
    if (root[0] && path_of(fd, path)) { \
      if (step('S', path, inode_of(fd))) die(); \
      keep(fd, inode_of(fd)); \
    } \
    return real(fd); \
  }
SYNC(fsync)
SYNC(fdatasync)

/* A new name below root: the process may die before it is there; it is noted once it is. */
static void entry(int at, const char *name, char *path) {
  path[0] = 0;
  if (!root[0]) return;
  absolute(at, name, path);
  if (!is_below(path)) path[0] = 0;
  else if (step(0, path, 0)) die();
}

static int noted(int found, const char *path) {
  char line[PATH_MAX + 64];
  if (!found && path[0]) {
    int size = snprintf(line, sizeof line, "E 0 %s\n", path);
    if (syscall(SYS_write, logged, line, size) != size) die();
  }
  return found;
}

int mkdir(const char *name, mode_t mode) {
  REAL(int, "mkdir", const char *, mode_t);
  char path[PATH_MAX];
  entry(AT_FDCWD, name, path);
  return noted(real(name, mode), path);
}

int rename(const char *from, const char *to) {
  REAL(int, "rename", const char *, const char *);
  char path[PATH_MAX];
  entry(AT_FDCWD, to, path);
  return noted(real(from, to), path);
}

int renameat(int at, const char *from, int into, const char *to) {
  REAL(int, "renameat", int, const char *, int, const char *);
  char path[PATH_MAX];
  entry(into, to, path);
  return noted(real(at, from, into, to), path);
}

int link(const char *from, const char *to) {
  REAL(int, "link", const char *, const char *);
  char path[PATH_MAX];
  entry(AT_FDCWD, to, path);
  return noted(real(from, to), path);
}

int linkat(int at, const char *from, int into, const char *to, int flags) {
  REAL(int, "linkat", int, const char *, int, const char *, int);
  char path[PATH_MAX];
  entry(into, to, path);
  return noted(real(at, from, into, to, flags), path);
}
