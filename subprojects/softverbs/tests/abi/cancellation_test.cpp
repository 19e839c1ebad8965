#include "cancellation.hpp"

#include <infiniband/verbs.h>
#include <softverbs/softverbs.h>

#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

using softverbs::test::runs_while_cancelled;

// Verbs take locks and call libc, whose functions are cancellation points. A cancelled thread ends
// only in the two verbs that wait for an event.

TEST_CASE("a thread that is cancelled opens a device, and makes and destroys its objects",
          "[abi]") {
  CHECK(runs_while_cancelled([] {
    int count = 0;
    ibv_device** const list = ibv_get_device_list(&count);
    REQUIRE(list != nullptr);
    CHECK(ibv_get_device_guid(list[count - 1]) != 0);
    ibv_context* const device = ibv_open_device(list[count - 1]);
    ibv_free_device_list(list);
    REQUIRE(device != nullptr);
    std::vector<ibv_gid_entry> gids(64);
    CHECK(ibv_query_gid_table(device, gids.data(), gids.size(), 0) > 0);
    ibv_pd* const pd = ibv_alloc_pd(device);
    // Three pages at least: such a range is checked by msync().
    std::vector<std::byte> memory(std::size_t{3} << 16);
    ibv_mr* const mr = ibv_reg_mr(pd, memory.data(), memory.size(), int{IBV_ACCESS_LOCAL_WRITE});
    CHECK(mr != nullptr);
    ibv_comp_channel* const channel = ibv_create_comp_channel(device);
    ibv_cq* const cq = ibv_create_cq(device, 4, nullptr, channel, 0);
    REQUIRE(cq != nullptr);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_UD;
    ibv_qp* const qp = ibv_create_qp(pd, &init);
    REQUIRE(qp != nullptr);
    ibv_ah_attr path{};
    path.port_num = 1;
    path.is_global = 1;
    path.grh.dgid = {{0x20, 1, 0xd, 0xb8}};  // A host that is none of ours is looked for.
    ibv_ah* const ah = ibv_create_ah(pd, &path);
    CHECK(ah != nullptr);
    CHECK(ibv_destroy_ah(ah) == 0);
    ibv_async_event event{};
    event.event_type = IBV_EVENT_PORT_ACTIVE;
    event.element.port_num = 1;
    CHECK(softverbs_raise_async_event(device, &event) == 0);
    CHECK(ibv_destroy_qp(qp) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    CHECK(ibv_destroy_comp_channel(channel) == 0);
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK(ibv_close_device(device) == 0);
  }));
}
