// The backend of `susd explore`: messages of PROTOCOL.md over a WebSocket.

export function remoteSource(names) {
  return { runs: names.map((name) => ({ name })), connect: (index) => new RemoteBackend(index) };
}

export class RemoteBackend {
  constructor(index) {
    this.onmessage = () => {};
    this.onclose = () => {};
    const address = new URL("ws", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    address.hash = "";
    address.search = `?run=${index}`;
    this.socket = new WebSocket(address);
    this.socket.onmessage = (event) => this.onmessage(JSON.parse(event.data));
    this.socket.onclose = () => this.onclose("The server has ended. Start susd explore again, then reload this page.");
  }

  send(message) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  close() {
    this.socket.onclose = null;
    this.socket.close();
  }
}
