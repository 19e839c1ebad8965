#include "../../lib/agent/grant.hpp"

#include "support/state_table.hpp"

using namespace cordma;

TEST_CASE("a grant takes each edge of its table, and no other", "[agent]") {
  using enum grant_state;
  test::check_table<grant_state>(
      {{unheard, binding},  {unheard, open},          {unheard, ended},
       {binding, unwanted}, {binding, open},          {binding, ended},
       {unwanted, open},    {unwanted, ended},        {open, asked},
       {open, waiting},     {open, invalidating},     {open, received},
       {open, ended},       {asked, waiting},         {asked, invalidating},
       {asked, ended},      {waiting, invalidating},  {waiting, received},
       {waiting, ended},    {invalidating, received}, {invalidating, ended},
       {received, ended},   {ended, unheard}},
      unheard, ended);
}

TEST_CASE("a grant is unopened until its window is bound", "[agent]") {
  using enum grant_state;
  for (const grant_state s : {unheard, binding, unwanted}) CHECK(is_unopened(s));
  for (const grant_state s : {open, asked, waiting, invalidating, received, ended})
    CHECK_FALSE(is_unopened(s));
}
