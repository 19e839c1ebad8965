// A rank of a job of PMIx whose launcher and other ranks do anything.
#include "group/pmix_client.hpp"

#include "group/meeting_frame.hpp"
#include "group/meeting_kinds.hpp"
#include "group/pmix_library.hpp"
#include "meetings.hpp"
#include "support/outcome.hpp"
#include "support/text.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <thread>

using namespace cordma;
using namespace std::chrono_literals;
using detail::pmix_client;
using test::code_of;

namespace {

/// A job of PMIx of which this process is one rank; the test says what the others put.
struct fake_job {
  unsigned size = 3;
  unsigned local_size = 3;
  unsigned rank = 1;
  pmix_status_t init_status = PMIX_SUCCESS;
  pmix_status_t fence_status = PMIX_SUCCESS;
  bool fence_ends = true;
  std::map<unsigned, std::vector<std::byte>> put{};
  unsigned finalized = 0;
  pmix_notification_fn_t handler = nullptr;

  void die(const char* of_namespace, unsigned dead) const {
    pmix_proc_t peer{};
    std::strncpy(peer.nspace, of_namespace, PMIX_MAX_NSLEN);
    peer.rank = dead;
    handler(0, PMIX_ERR_PROC_ABORTED, &peer, nullptr, 0, nullptr, 0, nullptr, nullptr);
  }
};
fake_job* job = nullptr;
std::atomic<unsigned> fences = 0;

pmix_status_t init(pmix_proc_t* own, pmix_info_t*, std::size_t) {
  std::strncpy(own->nspace, "job", PMIX_MAX_NSLEN);
  own->rank = job->rank;
  return job->init_status;
}
pmix_status_t finalize(const pmix_info_t*, std::size_t) {
  ++job->finalized;
  return PMIX_SUCCESS;
}
pmix_status_t put(pmix_scope_t, const char*, pmix_value_t* value) {
  const auto* const first = reinterpret_cast<const std::byte*>(value->data.bo.bytes);
  job->put.try_emplace(job->rank, first, first + value->data.bo.size);
  return PMIX_SUCCESS;
}
pmix_status_t commit() { return PMIX_SUCCESS; }
pmix_status_t fence(const pmix_proc_t*, std::size_t, const pmix_info_t*, std::size_t,
                    pmix_op_cbfunc_t done, void* of) {
  ++fences;
  if (job->fence_ends) done(job->fence_status, of);
  return PMIX_SUCCESS;
}
pmix_status_t get(const pmix_proc_t* of_rank, const char* key, const pmix_info_t*, std::size_t,
                  pmix_value_cbfunc_t done, void* of) {
  pmix_value_t value{};
  value.type = PMIX_UINT32;
  if (std::strcmp(key, PMIX_JOB_SIZE) == 0) {
    value.data.uint32 = job->size;
  } else if (std::strcmp(key, PMIX_LOCAL_SIZE) == 0) {
    value.data.uint32 = job->local_size;
  } else {
    const auto found = job->put.find(of_rank->rank);
    if (found == job->put.end()) return PMIX_ERR_NOT_FOUND;
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo = {reinterpret_cast<char*>(found->second.data()), found->second.size()};
  }
  done(PMIX_SUCCESS, &value, of);
  return PMIX_SUCCESS;
}
pmix_status_t register_handler(pmix_status_t*, std::size_t, pmix_info_t*, std::size_t,
                               pmix_notification_fn_t handler, pmix_hdlr_reg_cbfunc_t done,
                               void* of) {
  job->handler = handler;
  done(PMIX_SUCCESS, 0, of);
  return PMIX_SUCCESS;
}
const char* error_string(pmix_status_t status) {
  return status == PMIX_ERR_UNREACH ? "UNREACHABLE" : "ERROR";
}

constexpr detail::pmix_library functions{.init = &init,
                                         .finalize = &finalize,
                                         .put = &put,
                                         .commit = &commit,
                                         .fence = &fence,
                                         .get = &get,
                                         .register_handler = &register_handler,
                                         .error_string = &error_string};

detail::group_name name_of(unsigned rank) { return {std::byte(rank + 1)}; }

/// This rank, in a job whose other ranks have put their cards.
struct one_rank {
  explicit one_rank(fake_job of = {}) : said{std::move(of)} {
    job = &said;
    for (unsigned rank = 0; rank < said.size && rank < 8; ++rank)
      if (rank != said.rank)
        said.put[rank] = detail::meeting_frame::encode(
            detail::meeting_frame::card{name_of(rank), test::some_member(rank)});
  }
  one_rank(const one_rank&) = delete;
  ~one_rank() { job = &said; }  // `client` ends in this job, whichever was made last.

  result<detail::roster> meet() {
    const group_options options;
    const meeting own{detail::make_pmix_meeting(client)};
    return rt.run(as_result(test::meet(own, rt, options, test::some_member(said.rank))));
  }
  std::string refusal(errc code) {
    const result<detail::roster> got = meet();
    CHECK(code_of(got) == code);
    return got.has_failure() ? got.failure().to_string() : "";
  }

  fake_job said;
  manual_clock clock;
  runtime rt{test::on_test_device(test::by_hand(clock))};
  pmix_client client{functions};
};

}  // namespace

TEST_CASE("a rank of a job learns of all, and takes the name from rank 0", "[group][device]") {
  one_rank one;
  result<detail::roster> got = one.meet();
  REQUIRE(got.has_value());
  CHECK(got->rank == 1);
  CHECK(got->name == name_of(0));
  REQUIRE(got->members.size() == 3);
  for (unsigned rank = 0; rank < 3; ++rank)
    CHECK(got->members[rank].endpoint == test::some_member(rank).endpoint);
}

TEST_CASE("ranks of a job on one host listen on loopback", "[group][device]") {
  one_rank one;
  const meeting own{detail::make_pmix_meeting(one.client)};
  CHECK(one.rt.run(own.kind().where_to_listen(one.rt)) == endpoint{"127.0.0.1", 0});
}

TEST_CASE("PMIx ends once, if it has begun", "[group][device]") {
  fake_job said;
  for (const bool begins : {true, false}) {
    job = &said;
    said.finalized = 0;
    {
      pmix_client client{functions};
      if (begins) client.begin({});
    }
    CHECK(said.finalized == (begins ? 1 : 0));
  }
}

TEST_CASE("without a launcher's server PMIx says how to start the process", "[group][device]") {
  one_rank one{{.init_status = PMIX_ERR_UNREACH}};
  CHECK_THAT(one.refusal(errc::not_supported), Catch::Contains("PMIx_Init") &&
                                                   Catch::Contains("UNREACHABLE") &&
                                                   Catch::Contains("mpirun"));
}

TEST_CASE("a job without this rank, or of more ranks than can be, is refused", "[group][device]") {
  one_rank outside{{.size = 1}};
  CHECK_THAT(outside.refusal(errc::bad_message), Catch::Contains("rank 1 of a job of 1"));
  one_rank huge{{.size = 0xffffffff}};
  CHECK_THAT(huge.refusal(errc::bad_message), Catch::Contains("rank 1 of a job of 4294967295"));
}

TEST_CASE("a rank of a job that puts anything else is named", "[group][device]") {
  one_rank garbage;
  garbage.said.put[2] = test::bytes_of("hello, ranks");
  CHECK_THAT(garbage.refusal(errc::bad_message),
             Catch::Contains("rank 2: ") && Catch::Contains("no mark of a group"));
  one_rank longer;
  longer.said.put[0].resize(513);
  CHECK_THAT(longer.refusal(errc::bad_message),
             Catch::Contains("rank 0 has put no bytes, or more than 512"));
  one_rank missing;
  missing.said.put.erase(2);
  CHECK_THAT(missing.refusal(errc::disconnected), Catch::Contains("rank 2"));
}

TEST_CASE("a rank that leaves the job before all have come ends the meeting", "[group][device]") {
  one_rank one{{.fence_status = PMIX_ERR_LOST_CONNECTION}};
  CHECK_THAT(one.refusal(errc::disconnected), Catch::Contains("a rank has left the job"));
}

TEST_CASE("a fence that does not end is given up in time, and no other begins", "[group][device]") {
  one_rank one{{.fence_ends = false}};
  const unsigned before = fences;
  result<detail::roster> got = cancelled_result;
  const auto meet = [&]() -> task<> {
    group_options options;
    options.join_timeout = 1min;
    const meeting own{detail::make_pmix_meeting(one.client)};
    got = co_await as_result(test::meet(own, one.rt, options, test::some_member(1)));
  };
  const auto pass_time = [&]() -> task<> {
    co_await test::until(one.rt.executor(), [&] { return fences > before; });
    one.clock.advance(1min);
  };
  one.rt.run(when_all(meet(), pass_time()));
  REQUIRE(code_of(got) == errc::timed_out);
  CHECK_THAT(got.failure().to_string(), Catch::Contains("not all ranks of the job came"));
  one.said.fence_ends = true;
  CHECK_THAT(one.refusal(errc::refused), Catch::Contains("an earlier meeting by PMIx failed"));
}

TEST_CASE("a rank that waits for a fence can be stopped", "[group][device]") {
  const unsigned before = fences;
  one_rank one{{.fence_ends = false}};
  const meeting own{detail::make_pmix_meeting(one.client)};
  one.rt.run(with_scope([&](scope& running) -> task<> {
    running.spawn(test::meet(own, one.rt, test::patient(), test::some_member(1)));
    co_await test::until(one.rt.executor(), [&] { return fences > before; });
    running.request_stop();
  }));
  CHECK(one.said.finalized == 0);
}

TEST_CASE("deaths that the launcher tells of reach those that watch", "[group][device]") {
  one_rank one;
  REQUIRE(one.meet().has_value());
  const meeting own{detail::make_pmix_meeting(one.client)};
  std::vector<unsigned> lost, later;
  std::shared_ptr<void> watching =
      own.kind().watch(one.rt, [&](unsigned rank) { lost.push_back(rank); });
  std::thread{[&] {
    one.said.die("other job", 0);
    one.said.die("job", 7);
    one.said.die("job", 1);  // This rank itself.
    one.said.die("job", 2);
    one.said.die("job", 2);
  }}.join();
  one.rt.run(test::until(one.rt.executor(), [&] { return !lost.empty(); }));
  CHECK(lost == std::vector{2U});
  const auto late = own.kind().watch(one.rt, [&](unsigned rank) { later.push_back(rank); });
  watching.reset();
  one.said.die("job", 0);
  one.rt.run(test::until(one.rt.executor(), [&] { return later.size() == 2; }));
  CHECK(later == std::vector{2U, 0U});
  CHECK(lost == std::vector{2U});
}
