#pragma once

/// Catch2's main function, for programs whose own does something before.
int run_cases(int argc, char** argv);
