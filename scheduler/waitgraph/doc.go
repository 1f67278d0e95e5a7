// Package waitgraph finds BLS requests that wait for themselves.
//
// A model can make requests of its own while it executes (BLS), so a request can
// wait for the very execution that made it. A Graph, which all schedulers share
// whose models can call each other, knows the open BLS requests from
// Enter to Leave. Where each is the schedulers know; the Graph asks them:
//
//	instance ──executes──▶ batch ──has made──▶ BLS request ──┬─ queued ───▶ any instance of its Station
//	                                                         └─ executed ─▶ the instance that has it
//
// An instance waits for all open BLS requests of what it executes, a queued BLS request
// for any instance of its Station. A BLS request has hope if something it waits for has
// hope, and BLS requests without hope wait in circles: Check and Recheck refuse them.
//
// The schedulers are looked at one by one and may change meanwhile. So what a search
// has found is looked at a second time: Place and the changes of a Station count
// every move, and what was so twice without a move between was so at one time.
//
// Locks: Graph.searching, before a scheduler's lock, before Graph.mu. A Graph calls
// the methods of Waiter, Station and Batch, which take their scheduler's lock, with
// searching held and mu free. Enter, Leave, Responded and Rescheduled take mu alone
// and may be called with a scheduler locked; Check, Recheck and Suspects may not.
//
// Memory: Enter allocates one BLSRequest. Requests of clients touch no Graph, and a
// BLS request that finds an idle instance is never searched for.
package waitgraph
