#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "heap/arena.h"

namespace sirtaki::heap {
namespace {

constexpr uint64_t kTimesMemory = 4;
// 64 arenas of this size fill half of the addresses that a process has.
constexpr uint64_t kMostSpan = uint64_t{1} << 40;

}  // namespace

uint64_t default_span() {
  const auto pages = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES));
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::clamp(kTimesMemory * pages * page, uint64_t{1} << 30, kMostSpan);
}

bool has_huge_pages() {
  const int file = open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  std::array<char, 128> text{};
  const ssize_t bytes = read(file, text.data(), text.size() - 1);
  close(file);
  if (bytes <= 0) return false;
  return std::strstr(text.data(), "[never]") == nullptr &&
         std::strstr(text.data(), "[deny]") == nullptr;
}

}  // namespace sirtaki::heap
