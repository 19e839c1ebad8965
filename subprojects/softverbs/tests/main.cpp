#include "run_cases.hpp"

int main(int argc, char** argv) { return run_cases(argc, argv); }
