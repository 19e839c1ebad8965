#include "object/xrc_domain.hpp"

#include "node/fork_mutex.hpp"
#include "object/counted.hpp"
#include "object/soft_verbs.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <vector>

namespace softverbs {
namespace {

fork_mutex opening;
/// The files of the open domains, one entry for each open. Never destroyed: a program may close
/// domains when it exits.
std::vector<xrc_domain_id>& open_ids = *new std::vector<xrc_domain_id>;
std::uint64_t own_domains = 0;

}  // namespace

namespace verb {

ibv_xrcd* open_xrcd(ibv_context* ctx, ibv_xrcd_init_attr* attr) {
  constexpr std::uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if ((attr->comp_mask & needed) != needed || (attr->comp_mask & ~needed) != 0 ||
      (attr->oflags & ~(O_CREAT | O_EXCL)) != 0)
    return fail(EINVAL);
  auto domain = std::make_unique<xrc_domain>();
  struct stat file{};
  const bool is_own = attr->fd == -1;
  if (!is_own && ::fstat(attr->fd, &file) != 0) return fail(EBADF);
  const std::lock_guard lock{opening};
  // The kernel numbers devices by 32 bits.
  domain->id = is_own ? xrc_domain_id{++own_domains, xrc_domain_id::own_device}
                      : xrc_domain_id{file.st_ino, static_cast<std::uint32_t>(file.st_dev)};
  const bool exists = std::find(open_ids.begin(), open_ids.end(), domain->id) != open_ids.end();
  if (exists && (attr->oflags & O_EXCL) != 0) return fail(EINVAL);  // The kernel answers this, too.
  open_ids.push_back(domain->id);
  domain->handle.context = ctx;
  return &domain.release()->handle;
}

int close_xrcd(ibv_xrcd* xrcd) {
  xrc_domain& domain = softverbs::soft(xrcd);
  if (domain.users.load() != 0) return EBUSY;
  const std::lock_guard lock{opening};
  open_ids.erase(std::find(open_ids.begin(), open_ids.end(), domain.id));
  delete &domain;
  return 0;
}

}  // namespace verb
}  // namespace softverbs
