// Package attack puts garbage where a controller reads and demands that it goes on.
//
// It is tests only: a simulated cluster (package sim) whose znodes are damaged
// by hand-picked and by random payloads before and during the life of a
// controller. What always holds: topics that were left alone are led after a
// broker's death and after a failover, nothing panics, nothing goes round in
// circles, each trouble is told a bounded number of times, unreadable znodes
// stay as they are byte for byte, and once they are repaired everything is in
// service again (design decision D10). The trap: a payload that is readable
// but strange is no damage; a controller may act on it and write it anew.
package attack
