#include "checks.hpp"

#include "verbs/device_files.hpp"

#include <cordma/base/unique_fd.hpp>

#include <fcntl.h>

#include <cerrno>

namespace doctor {
namespace {

using cordma::verbs::detail::cannot_open;
using cordma::verbs::detail::device_file;
using cordma::verbs::detail::device_files;

std::string mend_of(int error, const std::string& path, const char* module) {
  switch (error) {
    case EACCES:
    case EPERM:
      return "sudo chgrp rdma " + path + " && sudo chmod 660 " + path +
             " && sudo usermod -aG rdma $USER (a udev rule keeps it)";
    case ENOENT:
    case ENXIO:
      return std::string{"sudo modprobe "} + module + "; in a container: --device " + path;
    case EMFILE:
    case ENFILE: return "ulimit -n 65536";
    default: return "sudo dmesg | grep -i infiniband";
  }
}

void check_verbs_file(const subject& s, const device_file& file, report& r) {
  // A device in user space does not replace one of the kernel's that may not be opened.
  const bool is_needed = s.kernel_device() == nullptr || s.device->info.name == file.device;
  const std::string why = "libibverbs opens " + file.path + " for reading and writing";
  if (file.open_error == 0) {
    r.ok("device.file", file.path + ": may be opened, for " + file.device, why);
    return;
  }
  const std::string value =
      cannot_open("open", file.device, file.path, file.open_error).to_string();
  const std::string mend = mend_of(file.open_error, file.path, "ib_uverbs");
  if (is_needed) {
    r.error("device.file", value, why, mend);
  } else {
    r.warning("device.file", value, why, mend);
  }
}

void check_cm_file(const subject& s, report& r) {
  const std::string path = "/dev/infiniband/rdma_cm";
  const std::string why = "only connections by rdma_cm (\"rdma_cm:HOST:PORT\") need it";
  const cordma::unique_fd file{::open(s.files.at(path).c_str(), O_RDWR | O_CLOEXEC)};
  if (file.is_open()) {
    r.ok("device.rdma_cm", path + ": may be opened", why);
    return;
  }
  const int error = errno;
  r.note("device.rdma_cm", path + ": " + cordma::errno_failure(error, "open").to_string(), why,
         mend_of(error, path, "rdma_ucm"));
}

}  // namespace

void check_device_files(const subject& s, report& r) {
  const device_files found =
      device_files::read(s.files.at("/sys/class").string(), s.files.at("/dev").string());
  if (!found.has_device) return;  // The check of devices says so.
  for (const device_file& file : found.files) check_verbs_file(s, file, r);
  if (found.files.empty()) {
    r.error("device.file", "none in /dev/infiniband",
            "the kernel has an RDMA device, and shows it to no program", "sudo modprobe ib_uverbs");
  }
  check_cm_file(s, r);
}

}  // namespace doctor
