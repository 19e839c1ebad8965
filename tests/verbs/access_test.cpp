#include <cordma/verbs/access.hpp>

#include <catch2/catch.hpp>

using namespace cordma::verbs;
namespace verbs = cordma::verbs;  // access(2) is there too.

TEST_CASE("access flags combine, compare and print", "[verbs]") {
  const verbs::access flags = verbs::access::local_write | verbs::access::remote_read;
  CHECK(allows(flags, verbs::access::local_write));
  CHECK_FALSE(allows(flags, verbs::access::local_write | verbs::access::remote_write));
  CHECK(to_string(flags) == "local_write|remote_read");
  CHECK(to_string(verbs::access::none) == "none");
  CHECK(to_string(verbs::access::on_demand | verbs::access::relaxed_ordering) ==
        "on_demand|relaxed_ordering");
  CHECK((flags & ~verbs::access::local_write) == verbs::access::remote_read);
}
