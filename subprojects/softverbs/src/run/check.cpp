#include "run/check.hpp"

#include "run/ports.hpp"
#include "run/program_file.hpp"
#include "run/report.hpp"
#include "run/settings.hpp"
#include "run/trace.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace softverbs::run {

namespace {

void check_settings(report& to) {
  for (const setting& one : settings()) {
    const std::string value = environment(one.variable);
    if (!value.empty() && one.is_valid != nullptr && !one.is_valid(value))
      to.problem("settings", std::string{one.variable} + "=" + value + ": must be " + one.valid);
  }
  if (environment("SOFTVERBS") == "off")
    to.problem("settings", "SOFTVERBS=off: the program sees nothing of softverbs");
  if (const std::string before = environment("LD_PRELOAD"); !before.empty())
    to.note("settings", "LD_PRELOAD=" + before + " stays ahead of softverbs' libraries");
}

std::string file_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// Reports what the dynamic linker says of the libraries together with a program.
trace check_loading(report& to, const libraries& ours, const std::string& dynamic_linker,
                    const std::string& path) {
  trace found = trace_program(dynamic_linker, path, preload_value(ours));
  for (const std::string& message : found.messages) to.problem("libraries", message);
  for (const std::string& name : found.missing) to.problem("libraries", name + " is not found");
  const bool loads = found.loads("libsoftverbs.so.0") && found.loads("libsoftverbs_cm.so.0");
  if (loads)
    to.ok("libraries", ours.verbs + ", " + ours.rdma_cm);
  else if (found.messages.empty())
    to.problem("libraries", "the dynamic linker of " + path + " preloads nothing");
  return found;
}

void check_contents(report& to, const std::string& path, const trace& loads) {
  if (!loads.loads("libc.so.6"))
    to.problem("program", path + " does not use glibc, whose names softverbs answers");
  const bool verbs = loads.loads("libibverbs.so.1");
  const bool rdma_cm = loads.loads("librdmacm.so.1");
  if (verbs || rdma_cm)
    to.ok("program", path + " loads " + (verbs ? "libibverbs" : "") +
                         (verbs && rdma_cm ? " and " : "") + (rdma_cm ? "librdmacm" : ""));
  else if (names_devices(path))
    to.problem("program", path +
                              " seems to have libibverbs or librdmacm linked statically into it, "
                              "which softverbs does not serve");
  else
    to.note("program", path +
                           " loads neither libibverbs nor librdmacm when it starts: it is "
                           "served if it, or a program that it starts, opens them later");
  to.note("program",
          "a library that it opens with RTLD_DEEPBIND is not served, which is said then; nothing "
          "tells of system calls that it makes without libc, which are not served");
}

std::string own_path() { return std::filesystem::read_symlink("/proc/self/exe"); }
program_file own_file() { return inspect(own_path()); }

/// Checks the program `name`; if it is a script, checks its interpreter instead.
void check_program(report& to, const libraries& ours, const std::string& name) {
  std::string path = find_program(name);
  if (path.empty()) return to.problem("program", name + " is not found");
  program_file file = inspect(path);
  if (file.is == program_file::kind::script) {
    to.note("program", path + " is a script: what it starts is served, too; below is " +
                           (file.interpreter.empty() ? "nothing" : file.interpreter));
    path = file.interpreter;
    file = inspect(path);
  }
  if (::access(path.c_str(), X_OK) != 0)
    return to.problem("program", path + ": " + std::strerror(errno));
  if (const std::string obstacle = file.obstacle(); !obstacle.empty())
    return to.problem("program", path + " " + obstacle);
  if (file.is != program_file::kind::dynamic)
    return to.problem("program", path + (file.is == program_file::kind::unreadable
                                             ? " cannot be read"
                                             : " is no program that is known here"));
  // Another libc's dynamic linker is not asked: it might run the program instead of answering.
  if (file_of(file.interpreter) != file_of(own_file().interpreter))
    return to.problem("program", path + " is for another libc than softverbs' libraries: it asks " +
                                     "for " + file.interpreter);
  check_contents(to, path, check_loading(to, ours, file.interpreter, path));
}

void check_rdma_cm(report& to) {
  constexpr const char* path = "/dev/infiniband/rdma_cm";
  const bool is_soft = environment("SOFTVERBS_CM") == "soft";
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  const int error = fd >= 0 ? 0 : errno;
  if (fd >= 0) ::close(fd);
  if (environment("SOFTVERBS_LINK_LAYER") == "infiniband")
    to.note("rdma_cm", "soft0 as an InfiniBand port has none (SOFTVERBS_LINK_LAYER)");
  if (is_soft)
    to.ok("rdma_cm", "softverbs answers, as SOFTVERBS_CM=soft says");
  else if (error != 0)
    to.ok("rdma_cm", std::string{"softverbs answers: the kernel's "} + path +
                         " cannot be opened (" + std::strerror(error) + ")");
  else
    to.problem("rdma_cm", std::string{"the kernel's "} + path +
                              " can be opened, so it answers, and knows no soft0: --cm soft");
}

void check_devices(report& to) {
  std::string all;
  std::error_code none;
  bool same_name = false;
  for (const auto& device : std::filesystem::directory_iterator{"/sys/class/infiniband", none}) {
    const std::string name = device.path().filename();
    same_name = same_name || name == "soft0";
    all += (all.empty() ? "" : ", ") + name;
  }
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  if (same_name) to.problem("devices", "a device of the kernel is called soft0, too");
  if (all.empty())
    to.ok("devices", "soft0 alone, which needs no locked memory");
  else
    to.note("devices", all +
                           " of the kernel come ahead of soft0: name soft0 to a program that "
                           "takes the first");
  constexpr unsigned kib = 1024;
  if (!all.empty() && limit.rlim_cur != RLIM_INFINITY)
    to.note("memlock", "RLIMIT_MEMLOCK is " + std::to_string(limit.rlim_cur / kib) +
                           " KiB, which limits the kernel's devices; soft0 locks no memory");
}

/// softverbs-run does not raise the limit. select() writes beyond its set for a descriptor of
/// FD_SETSIZE or more, and only the program knows whether it calls select().
void check_descriptors(report& to) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur <= FD_SETSIZE && limit.rlim_cur < limit.rlim_max)
    to.note("files", "RLIMIT_NOFILE is " + std::to_string(limit.rlim_cur) +
                         ": for hundreds of peers raise it (ulimit -n), unless the program uses "
                         "select()");
}

}  // namespace

int check(const libraries& ours, const std::string& program) {
  report to;
  check_settings(to);
  if (program.empty())
    check_loading(to, ours, own_file().interpreter, own_path());
  else
    check_program(to, ours, program);
  check_devices(to);
  check_descriptors(to);
  check_rdma_cm(to);
  check_ports(to);
  return to.problems();
}

}  // namespace softverbs::run
