// Package waitgraph finds BLS requests that wait for themselves.
//
// A model can make requests while it executes (BLS), so a request can wait for the execution that
// made it. All schedulers whose models can call each other share a Graph. It holds the open BLS
// requests, from Enter to Leave, and asks the schedulers for their positions:
//
//	instance ──executes──▶ batch ──has made──▶ BLS request ──┬─ queued ────▶ any instance of its InstanceSet
//	                                                         └─ executing ─▶ the instance that has it
//
// An instance waits for all open BLS requests of the batch that it executes. A queued BLS request
// waits for any instance of its InstanceSet. A BLS request has hope if something that it waits for
// has hope. Check and Recheck reject BLS requests without hope, because those wait in a cycle.
//
// The schedulers are examined one after another and may change during a search, so a search
// examines its result a second time. Position and the changes of an InstanceSet count every move.
// Facts that were true twice without a move in between were true at the same time.
//
// Locks: Graph.searching, then a scheduler's lock, then Graph.mu. A Graph calls the methods of
// Waiter, InstanceSet and Batch, which take their scheduler's lock, with searching held and mu
// free. Enter, Leave, Responded and Rescheduled take mu alone and may be called with a scheduler
// locked; Check, Recheck and Suspects may not.
//
// Memory: Enter allocates one BLSRequest. Requests of clients use no Graph, and no search runs for
// a BLS request that finds an idle instance.
package waitgraph
