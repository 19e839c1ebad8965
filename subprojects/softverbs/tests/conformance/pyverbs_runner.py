#!/usr/bin/env python3
"""pyverbs' run_tests.py, for devices whose network interface is not found in sysfs.

    pyverbs_runner.py INTERFACE OPTIONS...    in the folder that has the tests as package `tests`

The tests of rdma_cm need an address. pyverbs takes it from an interface that is named in
/sys/class/infiniband/DEVICE/device/net, a PCI device's folder, and skips them where there is none.
"""

import importlib
import os
import sys
import unittest


def main():
    interface = sys.argv.pop(1)
    sys.path[:0] = [os.getcwd(), os.path.join(os.getcwd(), "tests")]
    importlib.import_module("args_parser").parser.parse_args()  # The tests' modules need it done.
    tests = importlib.import_module("tests")

    def add_combination(case, device, port, gid_index):
        case.args.append([device, port, gid_index, *case.get_ip_mac_address(interface)])

    setattr(importlib.import_module("tests.base").RDMATestCase, "_get_ip_mac", add_combination)
    unittest.main(module=tests)


if __name__ == "__main__":
    main()
