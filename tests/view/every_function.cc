// Calls each function that the view replaces, on the device given as argument
// and outside the view. Prints failures; the exit status says whether there are
// any.
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

extern "C" {
// Called by programs that were compiled with _FORTIFY_SOURCE, or with an older
// glibc.
int __open_2(const char*, int);
int __open64_2(const char*, int);
int __openat_2(int, const char*, int);
int __openat64_2(int, const char*, int);
ssize_t __read_chk(int, void*, size_t, size_t);
ssize_t __pread_chk(int, void*, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void*, size_t, off_t, size_t);
ssize_t __readlink_chk(const char*, char*, size_t, size_t);
ssize_t __readlinkat_chk(int, const char*, char*, size_t, size_t);
char* __realpath_chk(const char*, char*, size_t);
char* __getcwd_chk(char*, size_t, size_t);
int __xstat(int, const char*, struct stat*);
int __xstat64(int, const char*, struct stat64*);
int __lxstat(int, const char*, struct stat*);
int __lxstat64(int, const char*, struct stat64*);
int __fxstatat(int, int, const char*, struct stat*, int);
int __fxstatat64(int, int, const char*, struct stat64*, int);
}

namespace {

int failures = 0;

#define CHECK(condition)                                             \
  do {                                                               \
    if (!(condition)) {                                              \
      std::printf("line %d: %s (errno: %s)\n", __LINE__, #condition, \
                  std::strerror(errno));                             \
      ++failures;                                                    \
    }                                                                \
  } while (false)

const std::string kClass = "/sys/class/infiniband";
const std::string kReal = "/sys/devices/virtual/infiniband";
std::string name, folder, guid, missing;

// Whether `fd` is a file that contains a GUID.
bool HoldsGuid(int fd) {
  if (fd < 0) return false;
  char text[64] = "";
  const ssize_t got = read(fd, text, sizeof(text) - 1);
  close(fd);
  return got == 20 && text[4] == ':' && text[19] == '\n';
}

bool HoldsGuid(FILE* file) {
  if (file == nullptr) return false;
  char text[64] = "";
  const bool got = fgets(text, sizeof(text), file) != nullptr;
  fclose(file);
  return got && std::strlen(text) == 20;
}

bool Fails(int result, int error) { return result == -1 && errno == error; }

void Opens() {
  CHECK(HoldsGuid(open(guid.c_str(), O_RDONLY)));
  CHECK(HoldsGuid(open64(guid.c_str(), O_RDONLY)));
  CHECK(HoldsGuid(__open_2(guid.c_str(), O_RDONLY)));
  CHECK(HoldsGuid(__open64_2(guid.c_str(), O_RDONLY)));
  CHECK(HoldsGuid(openat(AT_FDCWD, guid.c_str(), O_RDONLY)));
  CHECK(HoldsGuid(openat64(AT_FDCWD, guid.c_str(), O_RDONLY)));
  CHECK(HoldsGuid(__openat_2(AT_FDCWD, guid.c_str(), O_RDONLY)));
  CHECK(HoldsGuid(__openat64_2(AT_FDCWD, guid.c_str(), O_RDONLY)));
  CHECK(HoldsGuid(fopen(guid.c_str(), "r")));
  CHECK(HoldsGuid(fopen64(guid.c_str(), "re")));
  CHECK(HoldsGuid(freopen(guid.c_str(), "r", fopen("/dev/null", "r"))));
  CHECK(HoldsGuid(freopen64(guid.c_str(), "r", fopen("/dev/null", "r"))));
  CHECK(HoldsGuid(open(("/sys//class/" + guid.substr(10)).c_str(), O_RDONLY)));
  CHECK(Fails(open(missing.c_str(), O_RDONLY), ENOENT));
  CHECK(fopen(missing.c_str(), "r") == nullptr && errno == ENOENT);
  // As the kernel refuses operations that an attribute does not support, also
  // for root.
  CHECK(Fails(open(guid.c_str(), O_RDWR), EACCES));
  CHECK(Fails(open(missing.c_str(), O_RDONLY | O_CREAT, 0600), EACCES));
  CHECK(Fails(openat(AT_FDCWD, guid.c_str(), O_WRONLY), EACCES));
  CHECK(fopen(guid.c_str(), "r+") == nullptr && errno == EACCES);
  CHECK(freopen(guid.c_str(), "w", fopen("/dev/null", "r")) == nullptr &&
        errno == EACCES);
  // Opening relative to an open folder.
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  CHECK(HoldsGuid(openat(fd, "node_guid", O_RDONLY)));
  close(fd);
}

// Reads a descriptor that stays open, as programs do for counters.
void Reads() {
  const int fd = open(guid.c_str(), O_RDONLY);
  char text[64];
  for (int i = 0; i < 2; ++i) {
    CHECK(read(fd, text, sizeof(text)) == 20);
    CHECK(read(fd, text, sizeof(text)) == 0);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
    CHECK(__read_chk(fd, text, 5, sizeof(text)) == 5);
    CHECK(read(fd, text, sizeof(text)) == 15);
    CHECK(pread(fd, text, sizeof(text), 0) == 20);
    CHECK(pread64(fd, text, sizeof(text), 1) == 19);
    CHECK(__pread_chk(fd, text, sizeof(text), 0, sizeof(text)) == 20);
    CHECK(__pread64_chk(fd, text, sizeof(text), 0, sizeof(text)) == 20);
    CHECK(lseek(fd, 0, SEEK_SET) == 0);
  }
  close(fd);
  // The number now belongs to another file.
  const int other = open("/proc/self/comm", O_RDONLY);
  CHECK(other == fd && read(other, text, sizeof(text)) > 0);
  close(other);
}

void Looks() {
  struct stat s;
  struct stat64 s64;
  struct statx sx;
  const auto is_file = [&] { return S_ISREG(s.st_mode) && s.st_size == 20; };
  const auto is_file64 = [&] {
    return S_ISREG(s64.st_mode) && s64.st_size == 20;
  };
  CHECK(stat(guid.c_str(), &s) == 0 && is_file());
  CHECK(stat64(guid.c_str(), &s64) == 0 && is_file64());
  CHECK(lstat(folder.c_str(), &s) == 0 && S_ISLNK(s.st_mode));
  CHECK(lstat64(folder.c_str(), &s64) == 0 && S_ISLNK(s64.st_mode));
  CHECK(fstatat(AT_FDCWD, guid.c_str(), &s, 0) == 0 && is_file());
  CHECK(fstatat64(AT_FDCWD, guid.c_str(), &s64, 0) == 0 && is_file64());
  CHECK(statx(AT_FDCWD, guid.c_str(), 0, STATX_SIZE, &sx) == 0 &&
        sx.stx_size == 20);
  CHECK(__xstat(1, guid.c_str(), &s) == 0 && is_file());
  CHECK(__xstat64(1, guid.c_str(), &s64) == 0 && is_file64());
  CHECK(__lxstat(1, folder.c_str(), &s) == 0 && S_ISLNK(s.st_mode));
  CHECK(__lxstat64(1, folder.c_str(), &s64) == 0 && S_ISLNK(s64.st_mode));
  CHECK(__fxstatat(1, AT_FDCWD, guid.c_str(), &s, 0) == 0 && is_file());
  CHECK(__fxstatat64(1, AT_FDCWD, guid.c_str(), &s64, 0) == 0 && is_file64());
  CHECK(access(guid.c_str(), R_OK) == 0);
  CHECK(euidaccess(guid.c_str(), R_OK) == 0);
  CHECK(eaccess(guid.c_str(), R_OK) == 0);
  CHECK(faccessat(AT_FDCWD, guid.c_str(), R_OK, 0) == 0);
  CHECK(Fails(access(missing.c_str(), F_OK), ENOENT));
  CHECK(Fails(stat(missing.c_str(), &s), ENOENT));
  char text[PATH_MAX];
  const std::string target = "../../devices/virtual/infiniband/" + name;
  const auto is_target = [&](ssize_t got) {
    return got > 0 && std::string(text, static_cast<size_t>(got)) == target;
  };
  CHECK(is_target(readlink(folder.c_str(), text, sizeof(text))));
  CHECK(is_target(readlinkat(AT_FDCWD, folder.c_str(), text, sizeof(text))));
  CHECK(is_target(
      __readlink_chk(folder.c_str(), text, sizeof(text), sizeof(text))));
  CHECK(is_target(__readlinkat_chk(AT_FDCWD, folder.c_str(), text, sizeof(text),
                                   sizeof(text))));
  // The attribute does not exist, but the file does.
  const auto no_attribute = [](ssize_t got) {
    return got == -1 && (errno == ENODATA || errno == EOPNOTSUPP);
  };
  CHECK(no_attribute(getxattr(guid.c_str(), "user.x", text, sizeof(text))));
  CHECK(no_attribute(lgetxattr(guid.c_str(), "user.x", text, sizeof(text))));
  CHECK(listxattr(guid.c_str(), text, sizeof(text)) >= 0);
  CHECK(llistxattr(guid.c_str(), text, sizeof(text)) >= 0);
}

void Lists() {
  std::set<std::string> names;
  DIR* const stream = opendir(folder.c_str());
  CHECK(stream != nullptr);
  while (const dirent* entry = stream != nullptr ? readdir(stream) : nullptr) {
    names.insert(entry->d_name);
  }
  if (stream != nullptr) closedir(stream);
  CHECK(names.count("ports") == 1 && names.count("node_guid") == 1);
  dirent** list = nullptr;
  CHECK(scandir(kClass.c_str(), &list, nullptr, alphasort) >= 3);
  dirent64** list64 = nullptr;
  CHECK(scandir64(kClass.c_str(), &list64, nullptr, alphasort64) >= 3);
  CHECK(scandirat(AT_FDCWD, kClass.c_str(), &list, nullptr, alphasort) >= 3);
  CHECK(scandirat64(AT_FDCWD, kClass.c_str(), &list64, nullptr, alphasort64) >=
        3);
}

std::string walked;
bool base_is_right = true;
int OnFtw(const char* path, const struct stat*, int) {
  walked += std::string(path) + "\n";
  return 0;
}
int OnFtw64(const char* path, const struct stat64*, int) {
  return OnFtw(path, nullptr, 0);
}
int OnNftw(const char* path, const struct stat*, int, FTW* place) {
  if (place->base > 0 && path[place->base - 1] != '/') base_is_right = false;
  return OnFtw(path, nullptr, 0);
}
int OnNftw64(const char* path, const struct stat64*, int, FTW* place) {
  return OnNftw(path, nullptr, 0, place);
}

bool WalkedTo(const std::string& path) {
  const bool found = walked.find(path + "\n") != std::string::npos &&
                     walked.find("rxe_user-view") == std::string::npos;
  walked.clear();
  return found;
}

void Names() {
  const std::string real = kReal + "/" + name + "/node_guid";
  char text[PATH_MAX];
  CHECK(realpath(guid.c_str(), text) != nullptr && text == real);
  char* made = realpath(guid.c_str(), nullptr);
  CHECK(made != nullptr && made == real);
  free(made);
  CHECK(__realpath_chk(guid.c_str(), text, sizeof(text)) != nullptr &&
        text == real);
  made = canonicalize_file_name(guid.c_str());
  CHECK(made != nullptr && made == real);
  free(made);
  CHECK(realpath(missing.c_str(), text) == nullptr && errno == ENOENT);

  const std::string pattern = kClass + "/*/node_[gx]uid";
  glob_t found = {};
  found.gl_offs = 1;
  CHECK(glob("/dev/nul[l]", GLOB_DOOFFS, nullptr, &found) == 0);
  CHECK(glob(pattern.c_str(), GLOB_DOOFFS | GLOB_APPEND, nullptr, &found) == 0);
  CHECK(found.gl_pathc >= 2 && found.gl_pathv[1] == std::string("/dev/null"));
  CHECK(found.gl_pathc >= 2 && found.gl_pathv[2] == guid);
  globfree(&found);
  glob64_t found64 = {};
  CHECK(glob64(pattern.c_str(), 0, nullptr, &found64) == 0 &&
        found64.gl_pathv[0] == guid);
  globfree64(&found64);
  CHECK(glob((kClass + "/x*").c_str(), 0, nullptr, &found) == GLOB_NOMATCH);

  CHECK(ftw(folder.c_str(), OnFtw, 8) == 0 && WalkedTo(guid));
  CHECK(ftw64(folder.c_str(), OnFtw64, 8) == 0 && WalkedTo(guid));
  CHECK(nftw((folder + "/").c_str(), OnNftw, 8, 0) == 0 && WalkedTo(guid));
  CHECK(nftw64(real.c_str(), OnNftw64, 8, FTW_PHYS) == 0 && WalkedTo(real));
  CHECK(base_is_right);

  CHECK(chdir(folder.c_str()) == 0);
  CHECK(getcwd(text, sizeof(text)) != nullptr && text == kReal + "/" + name);
  CHECK(__getcwd_chk(text, sizeof(text), sizeof(text)) != nullptr &&
        text == kReal + "/" + name);
  unsetenv("PWD");
  made = get_current_dir_name();
  CHECK(made != nullptr && made == kReal + "/" + name);
  free(made);
  CHECK(HoldsGuid(open("node_guid", O_RDONLY)));
  CHECK(chdir("/") == 0);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  CHECK(fchdir(fd) == 0);
  struct stat s;
  CHECK(stat("ports/1/state", &s) == 0 && S_ISREG(s.st_mode));
  CHECK(fstatat(fd, "ports/1/gids/0", &s, 0) == 0 && S_ISREG(s.st_mode));
  close(fd);
  CHECK(chdir("/") == 0);
}

void Devices() {
  const int fd = open("/dev/infiniband/uverbs0", O_RDWR | O_CLOEXEC);
  CHECK(fd >= 0);
  CHECK(Fails(ioctl(fd, 0xc0181b01, nullptr), ENOTTY));
  close(fd);
  struct stat s;
  CHECK(stat("/dev/infiniband/uverbs0", &s) == 0 && S_ISCHR(s.st_mode));
  CHECK(access("/dev/infiniband/rdma_cm", R_OK | W_OK) == 0);
  CHECK(Fails(access("/dev/infiniband/uverbs99", F_OK), ENOENT));
}

void Others() {
  char text[PATH_MAX];
  errno = 77;
  CHECK(access("/dev/null", F_OK) == 0 && errno == 77);
  CHECK(access(guid.c_str(), F_OK) == 0 && errno == 77);
  CHECK(realpath("/dev/../dev/null", text) != nullptr &&
        text == std::string("/dev/null"));
  CHECK(Fails(open("/sys/class/infinibandx", O_RDONLY), ENOENT));
  const char* volatile null = nullptr;
  CHECK(Fails(open(null, O_RDONLY), EFAULT));
  // Functions with a mode argument.
  char made[] = "/tmp/every_function_XXXXXX";
  CHECK(mkdtemp(made) != nullptr);
  const std::string file = std::string(made) + "/x";
  umask(0);
  const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_EXCL, 0640);
  struct stat s;
  CHECK(fd >= 0 && fstat(fd, &s) == 0 && (s.st_mode & 0777) == 0640);
  close(fd);
  unlink(file.c_str());
  rmdir(made);
}

volatile sig_atomic_t seen_from_handler = 0;
void OnSignal(int) { seen_from_handler = access(guid.c_str(), F_OK) == 0; }

volatile sig_atomic_t children_told = 0;
void OnChild(int) { children_told = children_told + 1; }

std::set<std::string> OpenDescriptors() {
  std::set<std::string> names;
  DIR* const stream = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(stream)) names.insert(entry->d_name);
  closedir(stream);
  return names;
}

// The program must not notice that another one is run.
void NothingShows() {
  const auto before = OpenDescriptors();
  signal(SIGCHLD, OnChild);
  CHECK(HoldsGuid(open(guid.c_str(), O_RDONLY)));
  CHECK(children_told == 0);
  CHECK(Fails(waitpid(-1, nullptr, WNOHANG), ECHILD));
  signal(SIGCHLD, SIG_IGN);
  CHECK(HoldsGuid(open(guid.c_str(), O_RDONLY)));
  signal(SIGCHLD, OnChild);
  // A subreaper inherits the children of others, like process 1.
  CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
  CHECK(HoldsGuid(open(guid.c_str(), O_RDONLY)));
  CHECK(prctl(PR_SET_CHILD_SUBREAPER, 0) == 0);
  CHECK(children_told == 0);
  CHECK(Fails(waitpid(-1, nullptr, WNOHANG), ECHILD));
  signal(SIGCHLD, SIG_DFL);
  CHECK(OpenDescriptors() == before);
  sigset_t mask;
  CHECK(pthread_sigmask(SIG_SETMASK, nullptr, &mask) == 0 &&
        sigismember(&mask, SIGTERM) == 0);
}

void* OnSmallStack(void*) {
  CHECK(HoldsGuid(open(guid.c_str(), O_RDONLY)));
  return nullptr;
}

void Contexts() {
  signal(SIGUSR1, OnSignal);
  raise(SIGUSR1);
  CHECK(seen_from_handler == 1);

  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
  pthread_t thread;
  CHECK(pthread_create(&thread, &attributes, OnSmallStack, nullptr) == 0);
  pthread_join(thread, nullptr);

  int status = 0;
  pid_t child = vfork();
  if (child == 0) _exit(access(guid.c_str(), F_OK) == 0 ? 7 : 8);
  CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
  child = fork();
  if (child == 0) exit(HoldsGuid(open(guid.c_str(), O_RDONLY)) ? 7 : 8);
  CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);

  // As daemons do.
  close(0);
  for (int fd = 3; fd < 1024; ++fd) close(fd);
  CHECK(HoldsGuid(open(guid.c_str(), O_RDONLY)));
  CHECK(HoldsGuid(fopen(guid.c_str(), "r")));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  name = argv[1];
  folder = kClass + "/" + name;
  guid = folder + "/node_guid";
  missing = folder + "/missing";
  Opens();
  Reads();
  Looks();
  Lists();
  Names();
  Devices();
  Others();
  NothingShows();
  Contexts();
  return failures == 0 ? 0 : 1;
}
