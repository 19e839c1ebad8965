#pragma once

#include <cstdint>
#include <string_view>

/// A campaign repeats something very often. Its case tagged `[.soak-NAME]`, hidden from ordinary
/// runs, does so `count(full)` times; an ordinary case does a little of the same.
namespace soak {

/// SOFTVERBS_SOAK_COUNT if set, else `full` / SOFTVERBS_SOAK_DIVISOR (1 if not set); at least 1.
std::uint64_t count(std::uint64_t full);
/// SOFTVERBS_SEED if set, else a random one. Printed, so that a failure can be run again.
std::uint64_t seed();

/// Appends `kind<TAB>text` to this program's file in the folder SOFTVERBS_TEST_LOG, if set: the
/// cases that started, passed, failed or were skipped, and the counts.
void log(std::string_view kind, std::string_view text);
/// Counts the running case as skipped; it should return then.
void skip(std::string_view reason);

}  // namespace soak
