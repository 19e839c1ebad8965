"""Libraries of collectives: which are here, and how their ranks are started."""

import unittest

import fakes
from dev import libraries


class Libraries(fakes.ProjectCase):
    def library(self, key):
        return next(one for one in libraries.all_of(self.project, "soft0") if one.key == key)

    def test_a_library_is_here_if_its_program_was_built_and_its_launcher_is_there(self):
        self.file("cordma/build/bench/collectives/mpi_collectives")
        self.assertFalse(self.library("gloo").is_here(self.project))
        self.assertFalse(self.library("mpi").is_here(self.project))
        self.file("bin/mpirun", executable=True)
        self.assertTrue(self.library("mpi").is_here(self.project))

    def test_each_rank_is_told_its_number_and_where_to_meet(self):
        program = str(self.root / "build/bench/collectives/gloo_collectives")
        self.assertEqual(self.library("gloo").commands(2, "/meet"), [
            ([program, "/meet"], {"RANK": "0", "WORLD_SIZE": "2"}),
            ([program, "/meet"], {"RANK": "1", "WORLD_SIZE": "2"})])

    def test_mpirun_starts_all_ranks_and_binds_none(self):
        (command, variables), = self.library("mpi").commands(8, "/meet")
        self.assertEqual(" ".join(command[:-1]), "mpirun --oversubscribe --bind-to none -n 8")
        self.assertEqual(variables, {})

    def test_over_softverbs_open_mpi_has_no_other_way(self):
        variables = self.library("mpi_softverbs").variables
        self.assertEqual({name: variables[name] for name in (
            "OMPI_MCA_pml", "OMPI_MCA_btl", "UCX_TLS", "UCX_NET_DEVICES")}, {
                "OMPI_MCA_pml": "ucx", "OMPI_MCA_btl": "self", "UCX_TLS": "rc,self",
                "UCX_NET_DEVICES": "soft0:1"})
        self.assertIn(f"{self.root}/build/subprojects/softverbs/src/libsoftverbs.so",
                      variables["LD_PRELOAD"].split(":"))

    def test_gloo_has_three_algorithms_of_all_reduce_and_one_of_others(self):
        gloo = self.library("gloo")
        self.assertEqual(len(gloo.names("all_reduce")), 3)
        self.assertEqual(gloo.names("barrier"), ("barrier",))
        self.assertEqual(self.library("raw_event").names("all_reduce"), ())


if __name__ == "__main__":
    unittest.main()
