// The tries of cordma-doctor, on devices that lack something or fail.

#include "doctor/tries.hpp"

#include "support/device.hpp"
#include "support/skip.hpp"

#include <catch2/catch.hpp>

#include <cerrno>
#include <memory>
#include <string>

// <softverbs/softverbs.h> has them. Without softverbs there are none.
extern "C" {
[[gnu::weak]] int softverbs_fail_call(const char* verb, unsigned nth, int error);
[[gnu::weak]] int softverbs_pretend_missing(int capability);
[[gnu::weak]] int softverbs_reset(void);
}

using namespace cordma::test;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using doctor::severity;

namespace {

constexpr int memory_windows = 0;
constexpr int atomics = 1;
constexpr int atomic_write = 4;

/// The faults of soft0 that a test asked for are gone with it.
struct faults {
  faults() = default;
  faults(const faults&) = delete;
  faults& operator=(const faults&) = delete;
  ~faults() { softverbs_reset(); }
};

doctor::report report_of_tries() {
  doctor::report r;
  doctor::chosen_names names;
  names.device = device_name();
  const doctor::subject s = doctor::read_subject(names);
  const std::unique_ptr<cordma::runtime> rt = doctor::try_runtime(s, r);
  if (rt == nullptr) return r;
  doctor::try_registration(*rt, s, r);
  doctor::try_operations(*rt, r);
  doctor::try_windows(*rt, s, r);
  return r;
}

std::string said(const doctor::report& r, const std::string& check) {
  const doctor::finding* const f = r.find(check);
  return f == nullptr ? "nothing" : std::string{to_string(f->severity)} + ": " + f->value;
}

}  // namespace

TEST_CASE("operations that a device lacks are notes, and no errors", "[tools][device]") {
  if (!is_soft()) CORDMA_SKIP("only soft0 pretends to lack something");
  const faults f;
  for (const int one : {memory_windows, atomics, atomic_write})
    REQUIRE(softverbs_pretend_missing(one) == 0);
  const doctor::report r = report_of_tries();
  CHECK_THAT(said(r, "try.compare_swap"), StartsWith("note: compare_swap: the device has none"));
  CHECK_THAT(said(r, "try.fetch_add"), StartsWith("note: fetch_add: the device has none"));
  CHECK_THAT(said(r, "try.atomic_write"), StartsWith("note: atomic_write: the device has none"));
  CHECK_THAT(said(r, "try.windows"),
             StartsWith("note: the device has no memory windows of type 2"));
  CHECK_THAT(said(r, "try.lend"), StartsWith("note: "));
  CHECK_THAT(said(r, "try.read"), StartsWith("ok: "));
  CHECK(r.count(severity::error) == 0);
}

TEST_CASE("a device that cannot be opened is named", "[tools][device]") {
  if (!is_soft()) CORDMA_SKIP("only soft0 fails when it is told to");
  const faults f;
  doctor::chosen_names names;
  names.device = device_name();
  const doctor::subject s = doctor::read_subject(names);
  REQUIRE(softverbs_fail_call("ibv_open_device", 1, EIO) == 0);
  doctor::report r;
  CHECK(doctor::try_runtime(s, r) == nullptr);
  CHECK_THAT(said(r, "try.runtime"), StartsWith("error: ibv_open_device"));
}

TEST_CASE("memory that cannot be registered is named, with the limit", "[tools][device]") {
  if (!is_soft()) CORDMA_SKIP("only soft0 fails when it is told to");
  const faults f;
  doctor::chosen_names names;
  names.device = device_name();
  const doctor::subject s = doctor::read_subject(names);
  doctor::report r;
  const std::unique_ptr<cordma::runtime> rt = doctor::try_runtime(s, r);
  REQUIRE(rt != nullptr);
  REQUIRE(softverbs_fail_call("ibv_reg_mr", 1, ENOMEM) == 0);
  doctor::try_registration(*rt, s, r);
  CHECK_THAT(said(r, "try.register"), StartsWith("error: ibv_reg_mr: Cannot allocate memory"));
  CHECK_THAT(r.find("try.register")->mend, Contains("ulimit -l"));
  CHECK_THAT(said(r, "try.dma_buf"), StartsWith("ok: the device takes dma-bufs"));
}
