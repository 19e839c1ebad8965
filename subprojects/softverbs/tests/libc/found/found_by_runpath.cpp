extern "C" int softverbs_was_found() { return 1; }
