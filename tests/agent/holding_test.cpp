#include "../../lib/agent/holding.hpp"

#include "support/state_table.hpp"

using namespace cordma;

TEST_CASE("a holding takes each edge of its table, and no other", "[agent]") {
  using enum holding_state;
  test::check_table<holding_state>({{made, asking},
                                    {made, offered},
                                    {made, open},
                                    {asking, open},
                                    {asking, ended},
                                    {offered, open},
                                    {offered, declining},
                                    {offered, ended},
                                    {open, flushing},
                                    {open, flushing_for},
                                    {open, flushed},
                                    {open, returning},
                                    {open, ended},
                                    {flushing, returning},
                                    {flushing, ended},
                                    {flushing_for, flushing},
                                    {flushing_for, flushed},
                                    {flushing_for, ended},
                                    {flushed, handing_over},
                                    {flushed, returning},
                                    {flushed, ended},
                                    {handing_over, returning},
                                    {handing_over, ended},
                                    {returning, returned},
                                    {returning, ended},
                                    {declining, ended},
                                    {returned, ended},
                                    {ended, made}},
                                   made, ended);
}
