#include "one_sided.hpp"

namespace perf {

cordma::task<> repeat_one_sided(cordma::connection& conn, operation op, meter& m,
                                cordma::local_mr_slice here, cordma::remote_mr_slice there) {
  cordma::connection* const c = &conn;
  switch (over_rc(op)) {
    case operation::read: return repeat(m, [=] { return c->read(here, there); });
    case operation::cas: return repeat(m, [=] { return c->compare_swap(there, 0, 0); });
    case operation::faa: return repeat(m, [=] { return c->fetch_add(there, 1); });
    case operation::atomic_write: return repeat(m, [=] { return c->atomic_write(there, 1); });
    default: return repeat(m, [=] { return c->write(here, there); });
  }
}

}  // namespace perf
