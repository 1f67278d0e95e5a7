// Package objectstoretest runs real object stores for tests: SeaweedFS for S3, fake-gcs-server for
// Google's, Azurite for Azure's. The programs are in the directory that NEREID_TEST_STORES names;
// "make stores" makes it. A test that needs a missing program is skipped.
//
// Each function starts a store on ports of its own, which ends with the test. Objects are written
// by plain HTTP: S3 and Google's accept writes from anybody, and S3 requires a key for reads.
// Several goroutines may use a store.
package objectstoretest
