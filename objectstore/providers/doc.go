// Package providers has the clients of the supported object stores: Amazon's S3 and compatible
// stores, Google Cloud Storage, and Azure Blob Storage. Open is an objectstore.Opener for all of
// them.
//
//	s3.go     Amazon's SDK: signatures, the chain of credentials, regions
//	azure.go  Azure's SDK: shared keys, identities, anonymous access
//	gcs.go    two requests of the JSON API; the tokens are from golang.org/x/oauth2/google
//
// Only command nereid imports this package: the SDKs make binaries a third larger, and each test
// binary would link them. The build tag nereid_nostores leaves it out there.
//
// Each client has its own HTTP connections (transport.go). On these connections, stallTime without
// a byte is an error, regardless of the call's context, and a reply to a listing is at most
// mostReply long. Package objectstore retries; the SDKs' own retries are off. Users' URLs never
// reach an SDK: each request is made from the fields of an objectstore.Location.
//
// The only lock is that of a token in gcs.go, held while it is read or replaced. The only
// goroutines are those of net/http, and two of Google's library while it checks whether the machine
// is Google's.
package providers
