// Replaces what opens, closes and syncs files, and what takes mutexes and read-write locks, in the
// program it is linked into.
#include "tests/fakes/counting_calls.h"

#include <atomic>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace sluice {
CallsCounted calls_are_counted() { return CallsCounted::kNo; }
CallCounts count_calls() { return {}; }
}  // namespace sluice

#else

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>

namespace {

std::atomic<int64_t> opens{0}, closes{0}, locks{0}, folder_syncs{0}, data_syncs{0};

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

namespace sluice {
CallsCounted calls_are_counted() { return CallsCounted::kYes; }
CallCounts count_calls() { return {opens.load(), closes.load(), locks.load(), folder_syncs.load(), data_syncs.load()}; }
}  // namespace sluice

extern "C" int open(const char* path, int flags, ...) {
  static auto* const real = next<int(const char*, int, ...)>("open");
  opens.fetch_add(1);
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = va_arg(arguments, unsigned);
  va_end(arguments);
  return real(path, flags, mode);
}

extern "C" int openat(int folder, const char* path, int flags, ...) {
  static auto* const real = next<int(int, const char*, int, ...)>("openat");
  opens.fetch_add(1);
  va_list arguments;
  va_start(arguments, flags);
  const auto mode = va_arg(arguments, unsigned);
  va_end(arguments);
  return real(folder, path, flags, mode);
}

extern "C" int close(int file) {
  static auto* const real = next<int(int)>("close");
  closes.fetch_add(1);
  return real(file);
}

extern "C" int fsync(int file) {
  static auto* const real = next<int(int)>("fsync");
  struct stat status {};
  if (fstat(file, &status) == 0 && S_ISDIR(status.st_mode)) folder_syncs.fetch_add(1);
  return real(file);
}

extern "C" int fdatasync(int file) {
  static auto* const real = next<int(int)>("fdatasync");
  data_syncs.fetch_add(1);
  return real(file);
}

extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static auto* const real = next<int(pthread_mutex_t*)>("pthread_mutex_lock");
  locks.fetch_add(1);
  return real(mutex);
}

extern "C" int pthread_mutex_trylock(pthread_mutex_t* lock) noexcept {
  static auto* const real = next<int(pthread_mutex_t*)>("pthread_mutex_trylock");
  locks.fetch_add(1);
  return real(lock);
}

extern "C" int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  static auto* const real = next<int(pthread_rwlock_t*)>("pthread_rwlock_rdlock");
  locks.fetch_add(1);
  return real(lock);
}

extern "C" int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  static auto* const real = next<int(pthread_rwlock_t*)>("pthread_rwlock_wrlock");
  locks.fetch_add(1);
  return real(lock);
}

#endif
