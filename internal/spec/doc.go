// Package spec plays specifications against the project's own code: field
// cases (Run) and, in its tests, scenarios written as directives.
//
// Both stand on sim: one goroutine, virtual time, the real controller, state
// machines and codecs, over zkserver.Tree. What always holds: a case is
// checked in full or fails; only steps that need a capability which is not
// built are skipped, and named. The trap: expected values come from the spec
// and the cases; a difference is a finding about the code, never a reason to
// record the code's answer.
package spec
