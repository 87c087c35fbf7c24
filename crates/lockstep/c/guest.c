/* The libc of a simulated process. System calls of SQLite and the engine go to a kernel that the
** host simulates. Memory comes from an arena, so that the host can restore the whole process.
**
** The linker's --wrap sends the calls here; see scripts/lockstep. A function without a wrapper
** reaches the real system. Every function that SQLite and the engine use has a wrapper. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

typedef long (*ls_call)(long, long, long, long, long, long, long);

static long not_set(long nr, long a, long b, long c, long d, long e, long f){
  (void)nr; (void)a; (void)b; (void)c; (void)d; (void)e; (void)f;
  return -ENOSYS;
}
static ls_call ls_host = not_set;

/* A number that no system call has. */
#define LS_MEMORY 10001

static long ret(long code){
  if( code<0 && code>-4096 ){ errno = (int)-code; return -1; }
  return code;
}
#define CALL0(nr) ret(ls_host(nr,0,0,0,0,0,0))
#define CALL(nr,a,b,c,d) ret(ls_host(nr,(long)(a),(long)(b),(long)(c),(long)(d),0,0))

/* A step in shared memory: an access to the wal-index follows. */
void ls_memory(int what){ ls_host(LS_MEMORY, what, 0, 0, 0, 0, 0); }

/* ---- files ---- */
static int open_(int dir, const char *path, int flags, va_list more){
  int mode = flags & (O_CREAT|O_TMPFILE) ? va_arg(more, int) : 0;
  return (int)CALL(SYS_openat, dir, path, flags, mode);
}
#define OPEN(name) int __wrap_##name(const char *path, int flags, ...){ \
  va_list more; va_start(more, flags); int fd = open_(AT_FDCWD, path, flags, more); va_end(more); return fd; }
#define OPENAT(name) int __wrap_##name(int dir, const char *path, int flags, ...){ \
  va_list more; va_start(more, flags); int fd = open_(dir, path, flags, more); va_end(more); return fd; }
OPEN(open) OPEN(open64) OPENAT(openat) OPENAT(openat64)

int __wrap_close(int fd){ return (int)CALL(SYS_close, fd, 0, 0, 0); }
ssize_t __wrap_read(int fd, void *b, size_t n){ return CALL(SYS_read, fd, b, n, 0); }
ssize_t __wrap_write(int fd, const void *b, size_t n){ return CALL(SYS_write, fd, b, n, 0); }
ssize_t __wrap_pread(int fd, void *b, size_t n, off_t o){ return CALL(SYS_pread64, fd, b, n, o); }
ssize_t __wrap_pread64(int fd, void *b, size_t n, off_t o){ return CALL(SYS_pread64, fd, b, n, o); }
ssize_t __wrap_pwrite(int fd, const void *b, size_t n, off_t o){ return CALL(SYS_pwrite64, fd, b, n, o); }
ssize_t __wrap_pwrite64(int fd, const void *b, size_t n, off_t o){ return CALL(SYS_pwrite64, fd, b, n, o); }
ssize_t __wrap_readv(int fd, const struct iovec *v, int n){ return CALL(SYS_readv, fd, v, n, 0); }
ssize_t __wrap_preadv64(int fd, const struct iovec *v, int n, off_t o){ return CALL(SYS_preadv, fd, v, n, o); }
ssize_t __wrap_pwritev64(int fd, const struct iovec *v, int n, off_t o){ return CALL(SYS_pwritev, fd, v, n, o); }
ssize_t __wrap_preadv(int fd, const struct iovec *v, int n, off_t o){ return CALL(SYS_preadv, fd, v, n, o); }
ssize_t __wrap_pwritev(int fd, const struct iovec *v, int n, off_t o){ return CALL(SYS_pwritev, fd, v, n, o); }
ssize_t __wrap_writev(int fd, const struct iovec *v, int n){ return CALL(SYS_writev, fd, v, n, 0); }
off_t __wrap_lseek(int fd, off_t o, int w){ return CALL(SYS_lseek, fd, o, w, 0); }
off_t __wrap_lseek64(int fd, off_t o, int w){ return CALL(SYS_lseek, fd, o, w, 0); }
int __wrap_ftruncate(int fd, off_t n){ return (int)CALL(SYS_ftruncate, fd, n, 0, 0); }
int __wrap_ftruncate64(int fd, off_t n){ return (int)CALL(SYS_ftruncate, fd, n, 0, 0); }
int __wrap_fallocate64(int fd, int m, off_t o, off_t n){ return (int)CALL(SYS_fallocate, fd, m, o, n); }
int __wrap_fsync(int fd){ return (int)CALL(SYS_fsync, fd, 0, 0, 0); }
int __wrap_fdatasync(int fd){ return (int)CALL(SYS_fdatasync, fd, 0, 0, 0); }
int __wrap_sync_file_range(int fd, off_t o, off_t n, unsigned f){ return (int)CALL(SYS_sync_file_range, fd, o, n, f); }
int __wrap_posix_fadvise64(int fd, off_t o, off_t n, int a){ (void)fd; (void)o; (void)n; (void)a; return 0; }
int __wrap_fstat(int fd, struct stat *s){ return (int)CALL(SYS_fstat, fd, s, 0, 0); }
int __wrap_fstat64(int fd, struct stat *s){ return (int)CALL(SYS_fstat, fd, s, 0, 0); }
int __wrap_fstatat64(int d, const char *p, struct stat *s, int f){ return (int)CALL(SYS_newfstatat, d, p, s, f); }
int __wrap_stat(const char *p, struct stat *s){ return (int)CALL(SYS_newfstatat, AT_FDCWD, p, s, 0); }
int __wrap_stat64(const char *p, struct stat *s){ return (int)CALL(SYS_newfstatat, AT_FDCWD, p, s, 0); }
int __wrap_lstat(const char *p, struct stat *s){ return (int)CALL(SYS_newfstatat, AT_FDCWD, p, s, AT_SYMLINK_NOFOLLOW); }
int __wrap_lstat64(const char *p, struct stat *s){ return (int)CALL(SYS_newfstatat, AT_FDCWD, p, s, AT_SYMLINK_NOFOLLOW); }
int __wrap_statx(int d, const char *p, int f, unsigned m, struct statx *s){
  return (int)ret(ls_host(SYS_statx, d, (long)p, f, m, (long)s, 0));
}
int __wrap_statfs64(const char *p, struct statfs *s){ (void)p; (void)s; errno = ENOSYS; return -1; }
int __wrap_fstatfs64(int fd, struct statfs *s){ return (int)CALL(SYS_fstatfs, fd, s, 0, 0); }
int __wrap_access(const char *p, int m){ return (int)CALL(SYS_faccessat, AT_FDCWD, p, m, 0); }
int __wrap_faccessat(int d, const char *p, int m, int f){ return (int)CALL(SYS_faccessat, d, p, m, f); }
int __wrap_unlink(const char *p){ return (int)CALL(SYS_unlinkat, AT_FDCWD, p, 0, 0); }
int __wrap_unlinkat(int d, const char *p, int f){ return (int)CALL(SYS_unlinkat, d, p, f, 0); }
int __wrap_rename(const char *a, const char *b){ return (int)CALL(SYS_renameat, AT_FDCWD, a, AT_FDCWD, b); }
int __wrap_renameat(int d, const char *a, int e, const char *b){ return (int)CALL(SYS_renameat, d, a, e, b); }
ssize_t __wrap_readlink(const char *p, char *b, size_t n){ return CALL(SYS_readlinkat, AT_FDCWD, p, b, n); }
ssize_t __wrap_readlinkat(int d, const char *p, char *b, size_t n){ return CALL(SYS_readlinkat, d, p, b, n); }
int __wrap_fchmod(int fd, mode_t m){ return (int)CALL(SYS_fchmod, fd, m, 0, 0); }
int __wrap_fchown(int fd, uid_t u, gid_t g){ return (int)CALL(SYS_fchown, fd, u, g, 0); }
int __wrap_dup(int fd){ return (int)CALL(SYS_fcntl, fd, F_DUPFD, 0, 0); }
int __wrap_fcntl(int fd, int op, ...){
  va_list more; va_start(more, op); long a = va_arg(more, long); va_end(more);
  return (int)CALL(SYS_fcntl, fd, op, a, 0);
}
int __wrap_fcntl64(int fd, int op, ...){
  va_list more; va_start(more, op); long a = va_arg(more, long); va_end(more);
  return (int)CALL(SYS_fcntl, fd, op, a, 0);
}
int __wrap_ioctl(int fd, unsigned long op, ...){ (void)fd; (void)op; errno = ENOTTY; return -1; }
void *__wrap_mmap(void *p, size_t n, int pr, int f, int fd, off_t o){
  (void)p; return (void*)ret(ls_host(SYS_mmap, (long)n, pr, f, fd, o, 0));
}
void *__wrap_mmap64(void *p, size_t n, int pr, int f, int fd, off_t o){ return __wrap_mmap(p, n, pr, f, fd, o); }
int __wrap_munmap(void *p, size_t n){ return (int)CALL(SYS_munmap, p, n, 0, 0); }
void *__wrap_mremap(void *p, size_t n, size_t m, int f, ...){
  (void)p; (void)n; (void)m; (void)f; errno = ENOMEM; return (void*)-1;
}
char *__wrap_getcwd(char *b, size_t n){
  if( n<2 ){ errno = ERANGE; return 0; }
  return strcpy(b, "/");
}

/* ---- processes, time, chance ---- */
pid_t __wrap_getpid(void){ return (pid_t)CALL0(SYS_getpid); }
pid_t __wrap_gettid(void){ return (pid_t)CALL0(SYS_getpid); }
uid_t __wrap_geteuid(void){ return 0; }
uid_t __wrap_getuid(void){ return 0; }
int __wrap_clock_gettime(clockid_t c, struct timespec *t){ return (int)CALL(SYS_clock_gettime, c, t, 0, 0); }
int __wrap_gettimeofday(struct timeval *t, void *z){
  struct timespec s; (void)z;
  int rc = (int)CALL(SYS_clock_gettime, CLOCK_REALTIME, &s, 0, 0);
  t->tv_sec = s.tv_sec; t->tv_usec = s.tv_nsec/1000;
  return rc;
}
time_t __wrap_time(time_t *t){
  struct timespec s; CALL(SYS_clock_gettime, CLOCK_REALTIME, &s, 0, 0);
  if( t ) *t = s.tv_sec;
  return s.tv_sec;
}
int __wrap_nanosleep(const struct timespec *t, struct timespec *r){ (void)r; return (int)CALL(SYS_nanosleep, t, 0, 0, 0); }
int __wrap_clock_nanosleep(clockid_t c, int f, const struct timespec *t, struct timespec *r){
  (void)c; (void)f; (void)r; return CALL(SYS_nanosleep, t, 0, 0, 0) ? errno : 0;
}
int __wrap_usleep(useconds_t us){
  struct timespec t = { us/1000000, (long)(us%1000000)*1000 };
  return (int)CALL(SYS_nanosleep, &t, 0, 0, 0);
}
unsigned __wrap_sleep(unsigned s){ struct timespec t = { s, 0 }; CALL(SYS_nanosleep, &t, 0, 0, 0); return 0; }
ssize_t __wrap_getrandom(void *b, size_t n, unsigned f){ return CALL(SYS_getrandom, b, n, f, 0); }
/* One processor: time stands still between a process's steps, so none may wait for another without
** sleeping. */
int __wrap_sched_getaffinity(pid_t p, size_t n, cpu_set_t *s){
  (void)p;
  memset(s, 0, n);
  CPU_SET_S(0, n, s);
  return 0;
}
int __wrap_sched_yield(void){ return (int)CALL0(SYS_sched_yield); }
long __wrap_syscall(long nr, ...){
  va_list m; va_start(m, nr);
  long a[6]; for(int i=0; i<6; i++) a[i] = va_arg(m, long);
  va_end(m);
  return ret(ls_host(nr, a[0], a[1], a[2], a[3], a[4], a[5]));
}
/* Callers look here for functions of a newer libc. Without them they fall back. */
void *__wrap_dlsym(void *h, const char *name){
  (void)h;
  return strcmp(name, "getrandom")==0 ? (void*)__wrap_getrandom : 0;
}
/* A thread would run outside the schedule. */
int __wrap_pthread_create(void *t, const void *a, void *(*f)(void*), void *x){
  (void)t; (void)a; (void)f; (void)x; ls_host(SYS_clone, 0,0,0,0,0,0); return EAGAIN;
}
/* Threads do not end here. */
int __wrap___cxa_thread_atexit_impl(void *f, void *o, void *d){ (void)f; (void)o; (void)d; return 0; }

int __wrap_pthread_key_create(unsigned *key, void (*f)(void*)){ (void)f; *key = 1000; return 0; }
int __wrap_pthread_setspecific(unsigned key, const void *p){ (void)key; (void)p; return 0; }

/* ---- memory ---- */
#define ARENA (48L<<20)
#define CLASSES 96
struct head { size_t class; void *block; };        /* in front of every allocation */
struct hole { struct hole *next; };
static char *arena; static size_t arena_used;
static struct hole *holes[CLASSES];

/* Classes are powers of two, and three steps between each two. */
static size_t class_of(size_t n, size_t *size){
  size_t c = 0, s = 32, step = 8;
  if( n<=32 ){ *size = 32; return 0; }
  while( s*2<n ){ s *= 2; c += 4; }
  step = s/4;
  for(size_t i=1; i<=4; i++){ if( s+i*step>=n ){ *size = s+i*step; return c+i; } }
  return CLASSES;
}
static void *take(size_t n, size_t align){
  size_t size, extra = align>16 ? align : 0;
  size_t class = class_of(n+extra+sizeof(struct head), &size);
  if( class>=CLASSES ) return 0;
  char *block;
  if( holes[class] ){ block = (char*)holes[class]; holes[class] = holes[class]->next; }
  else{
    size = (size+15)&~(size_t)15;
    if( arena_used+size>ARENA ) return 0;
    block = arena+arena_used; arena_used += size;
  }
  char *at = block+sizeof(struct head);
  if( extra ) at = (char*)(((uintptr_t)at+align-1)&~(uintptr_t)(align-1));
  struct head *h = (struct head*)at-1;
  h->class = class; h->block = block;
  return at;
}
static size_t room(void *p){
  struct head *h = (struct head*)p-1;
  size_t s = 32, c = h->class;
  if( c ){ size_t base = (size_t)32<<((c-1)/4); s = base+((c-1)%4+1)*(base/4); }
  return (size_t)((char*)h->block+s-(char*)p);
}
extern void __real_free(void*);
static int ours(void *p){ return (char*)p>=arena && (char*)p<arena+ARENA; }
void *__wrap_malloc(size_t n){ return take(n, 16); }
void __wrap_free(void *p){
  if( !p ) return;
  if( !ours(p) ){ __real_free(p); return; }
  struct head *h = (struct head*)p-1;
  size_t class = h->class;
  struct hole *hole = h->block;
  hole->next = holes[class]; holes[class] = hole;
}
void *__wrap_calloc(size_t n, size_t m){
  size_t all;
  if( __builtin_mul_overflow(n, m, &all) ) return 0;
  void *p = take(all, 16);
  if( p ) memset(p, 0, all);
  return p;
}
void *__wrap_realloc(void *p, size_t n){
  if( !p ) return take(n, 16);
  if( room(p)>=n ) return p;
  void *q = take(n, 16);
  if( q ){ memcpy(q, p, room(p)); __wrap_free(p); }
  return q;
}
int __wrap_posix_memalign(void **out, size_t align, size_t n){
  *out = take(n, align); return *out ? 0 : ENOMEM;
}
void *__wrap_aligned_alloc(size_t align, size_t n){ return take(n, align); }
size_t __wrap_malloc_usable_size(void *p){ return p ? room(p) : 0; }

/* ---- functions for the host ---- */
extern int lockstep_register(void);
extern int sqlite3_initialize(void);
/* Touching it creates the thread's data, so that the host can find and restore it. */
static __thread volatile int touched;
void ls_begin(ls_call host, char *memory){ ls_host = host; arena = memory; touched = 1; }
int ls_register(int ours){
  int rc = sqlite3_initialize();
  if( rc==0 && ours ) rc = lockstep_register();
  return rc;
}
size_t ls_arena_used(void){ return arena_used; }
