#include "device_files.hpp"

#include "base/descriptors.hpp"
#include "failures.hpp"

#include <cordma/base/unique_fd.hpp>

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace cordma::verbs::detail {
namespace {

namespace fs = std::filesystem;

int errno_of_opening(const std::string& path) {
  const unique_fd fd{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
  return fd.is_open() ? 0 : errno;
}

/// Returns a failure if descriptors are short. libibverbs opens several files at once to list
/// devices, and silently omits those for which it lacks a descriptor.
std::optional<failure> why_unlisted() noexcept {
  constexpr std::size_t needed = 8;
  std::array<unique_fd, needed> some;
  for (unique_fd& one : some) {
    one = unique_fd{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
    if (!one.is_open() && lacks_descriptors(errno))
      return errno_failure(errno, "ibv_get_device_list", {}, more_descriptors);
  }
  return std::nullopt;
}

}  // namespace

device_files device_files::read(const std::string& sys, const std::string& dev) {
  device_files found;
  std::error_code none;  // A missing folder counts as an empty one.
  found.has_device = fs::directory_iterator{sys + "/infiniband", none} != fs::directory_iterator{};
  for (const fs::directory_entry& entry : fs::directory_iterator{sys + "/infiniband_verbs", none}) {
    device_file file;
    std::ifstream{entry.path() / "ibdev"} >> file.device;
    if (file.device.empty()) continue;  // "abi_version" is there, too.
    file.path = dev + "/infiniband/" + entry.path().filename().string();
    file.open_error = errno_of_opening(file.path);
    found.files.push_back(std::move(file));
  }
  return found;
}

std::optional<failure> why_unusable(const device_files& found, std::string_view device) {
  if (auto why = why_unlisted()) return why;
  const auto is_unusable = [&](const device_file& file) {
    return (device.empty() || file.device == device) && file.open_error != 0;
  };
  const auto file = std::find_if(found.files.begin(), found.files.end(), is_unusable);
  if (file != found.files.end()) {
    return cannot_open("open", file->device, file->path, file->open_error);
  }
  if (found.has_device && found.files.empty()) {
    return failure{.code = errc::no_device,
                   .call = "ibv_get_device_list",
                   .detail = "the kernel module ib_uverbs is not loaded (modprobe ib_uverbs)"};
  }
  return std::nullopt;
}

failure cannot_open(const char* call, std::string_view device, std::string_view path,
                    int errno_value) noexcept {
  const auto size = [](std::string_view text) { return static_cast<int>(text.size()); };
  const char* format = "%.*s is there, but %.*s cannot be opened";
  switch (errno_value) {
    case EACCES:
    case EPERM:
      format =
          "%.*s is there, but no permission on %.*s: join the group that may open it (often rdma), "
          "or add a udev rule; in a container: --device %.*s --device /dev/infiniband/rdma_cm";
      break;
    case ENOENT:
    case ENXIO:
      format =
          "%.*s is there, but %.*s is missing: load ib_uverbs (udev makes the file); in a "
          "container: --device %.*s --device /dev/infiniband/rdma_cm";
      break;
    case EMFILE:
    case ENFILE: return errno_failure(errno_value, call, {}, more_descriptors);
    default: break;
  }
  char text[240];
  std::snprintf(text, sizeof text, format, size(device), device.data(), size(path), path.data(),
                size(path), path.data());
  return errno_failure(errno_value, call, {}, text);
}

}  // namespace cordma::verbs::detail
