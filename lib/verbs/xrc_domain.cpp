#include "failures.hpp"
#include "shared_receive_queue.hpp"

#include <cordma/base/unique_fd.hpp>
#include <cordma/detail/base/assert.hpp>
#include <cordma/verbs/queue_pair.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace cordma::verbs {
namespace {

constexpr const char* open_xrcd = "ibv_open_xrcd";
constexpr int no_file = -1;
constexpr mode_t own_file = 0600;

[[noreturn]] void throw_unusable(int error, const std::string& path, const char* why) {
  detail::throw_errno(error, "open", detail::detail_text("XRC domain %.100s%s", path.c_str(), why));
}

/// Programs that open the same file share the domain, so no other user may choose it.
void check_file(const unique_fd& file, const std::string& path) {
  struct stat found{};
  if (::fstat(file.get(), &found) != 0) throw_unusable(errno, path, "");
  if (!S_ISREG(found.st_mode)) throw_unusable(EINVAL, path, ": no regular file: name another path");
  constexpr uid_t root = 0;
  if (found.st_uid != root && found.st_uid != ::geteuid())
    throw_unusable(EPERM, path, ": another user's: name a file of this user, or of root");
}

unique_fd opened(std::string_view path) {
  const std::string text{path};
  if (path.find('\0') != path.npos)
    throw_unusable(EINVAL, text, ": a NUL would end the path there: leave it out");
  // A FIFO is refused, not waited for.
  constexpr int flags = O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  unique_fd file{::open(text.c_str(), flags, own_file)};
  if (!file.is_open()) {
    const char* const way_out =
        errno == ELOOP ? ": a symbolic link: name the file that it leads to" : "";
    throw_unusable(errno, text, way_out);
  }
  check_file(file, text);
  return file;
}

}  // namespace

void check_xrc(const char* call, const device_limits& limits) {
  if (limits.xrc) return;
  detail::throw_failure(errc::not_supported, call,
                        "the device has no XRC (IBV_DEVICE_XRC): use another, or RC, where each "
                        "pair of processes has a queue pair");
}

void xrc_domain::closer::operator()(ibv_xrcd* domain) const noexcept {
  const int rc =
      ibv_close_xrcd(domain);  // Another errno: the device is gone, which is nobody's bug.
  CORDMA_ASSERT(rc != EBUSY, "XRC domain closed before its receive queues or targets");
}

xrc_domain::xrc_domain(context& ctx) : limits_{ctx.limits()} { open(ctx, no_file); }

xrc_domain::xrc_domain(context& ctx, int file) : limits_{ctx.limits()} {
  if (file < 0) detail::throw_errno(EBADF, open_xrcd, "the file of an XRC domain is not open");
  open(ctx, file);
}

xrc_domain::xrc_domain(context& ctx, std::string_view path) : limits_{ctx.limits()} {
  check_xrc(open_xrcd, limits_);  // A file that serves nobody is not made.
  open(ctx, opened(path).get());
}

void xrc_domain::open(context& ctx, int file) {
  check_xrc(open_xrcd, limits_);
  ibv_xrcd_init_attr attributes{};
  attributes.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  attributes.fd = file;
  attributes.oflags = O_CREAT;
  domain_.reset(ibv_open_xrcd(ctx.native_handle(), &attributes));
  if (domain_ == nullptr)
    detail::throw_errno(errno, open_xrcd, detail::detail_text("the domain of descriptor %d", file));
}

}  // namespace cordma::verbs
