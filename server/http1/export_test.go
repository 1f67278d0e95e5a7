package http1

// Names for the tests in package http1_test.

const LobbySize = lobbySize
