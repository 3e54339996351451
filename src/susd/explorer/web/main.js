// The page of `susd explore`: all runs are on the server that sent this file.
import { startApp } from "./app.js";
import { remoteSource } from "./remote.js";

startApp(remoteSource(JSON.parse(document.body.dataset.runs)));
