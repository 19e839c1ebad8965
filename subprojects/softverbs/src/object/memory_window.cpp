#include "memory/key_table.hpp"
#include "node/node.hpp"
#include "object/context.hpp"
#include "object/counted.hpp"
#include "object/protection_domain.hpp"
#include "object/soft_verbs.hpp"

#include <cerrno>
#include <memory>

namespace softverbs::verb {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return fail(EINVAL);
  if (limits().max_mw == 0) return fail(EOPNOTSUPP);
  auto mw = std::make_unique<ibv_mw>();
  object_count& windows = counts_of(pd->context).windows;
  if (!windows.add(limits().max_mw)) return fail(ENOMEM);
  const std::uint32_t key = soft(pd->context).local_node->keys().allocate();
  if (key == 0) {
    windows.remove();
    return fail(ENOMEM);
  }
  softverbs::soft(pd).users.fetch_add(1);
  *mw = {
      .context = pd->context, .pd = pd, .rkey = key, .handle = key >> variant_bits, .type = type};
  return mw.release();
}

int dealloc_mw(ibv_mw* mw) {
  // The slot identifies the key, whatever its variant. The program may have changed `rkey`.
  soft(mw->context).local_node->keys().free(mw->handle << variant_bits);
  softverbs::soft(mw->pd).users.fetch_sub(1);
  counts_of(mw->context).windows.remove();
  delete mw;
  return 0;
}

}  // namespace softverbs::verb
