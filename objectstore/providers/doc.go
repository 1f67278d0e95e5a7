// Package providers has the clients of the object stores that repositories lie in: Amazon's S3 and its relatives, Google's Cloud
// Storage, Azure's blobs. Open is an objectstore.Opener for all of them.
//
//	s3.go     Amazon's SDK: signatures, the chain of credentials, regions
//	azure.go  Azure's SDK: shared keys, identities, anonymous access
//	gcs.go    two requests of the JSON API; the tokens are from golang.org/x/oauth2/google
//
// Command nereid alone imports this package: the SDKs make binaries a third larger, and each test binary would be linked with
// them. The build tag nereid_noclouds leaves it out there.
//
// Each client has HTTP connections of its own (transport.go), on which a stop of all bytes for stallTime is an error, whatever
// the call's context says, and on which no reply to a listing can be larger than mostReply. Retries are made by package objects:
// those of the SDKs are off. URLs of users never reach an SDK: each request is made of the fields of an objectstore.Location.
//
// There are no locks besides that of a token in gcs.go, held while it is read or replaced, and goroutines besides those of
// net/http; Google's client library starts two for an instant when it asks whether the machine is Google's.
package providers
